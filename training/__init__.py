"""What makes the bundled model Pebble: dialogues, tokenizer, training, evaluation, export."""
