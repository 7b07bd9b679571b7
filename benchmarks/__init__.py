"""Benchmarks: one module per question, each of which prints a table and JSON."""
