"""Audio of requests: its bounded decoding to samples."""
