"""Programs that use aiomlc; each runs as it is, on the bundled model."""
