"""The dialogues that Pebble learns from, one module per family of skills."""
