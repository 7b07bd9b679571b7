"""The training dialogues of Pebble, one module per group of skills."""
