"""Images of requests: where they may come from, and their bounded decoding."""
