"""The training of the bundled model Pebble: dialogues, tokenizer, training, evaluation, export."""
