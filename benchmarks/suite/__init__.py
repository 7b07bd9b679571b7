"""Benchmark suite that measures aiomlc and its peers on the same model, interleaved."""
