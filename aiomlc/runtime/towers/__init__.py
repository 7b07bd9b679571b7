"""Towers: parts of a model whose outputs are embeddings of its decoder, and their batches."""
