"""Speech: log-mel features, the rules of timestamps, and the decoding of windows."""
