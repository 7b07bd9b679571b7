"""A small job, and the entries of the cache of libraries."""

from __future__ import annotations

__all__ = ("CONFIG", "JOB", "LAYER", "Install", "entries")

from collections.abc import Callable
from pathlib import Path

from aiomlc.compiler import CompileJob
from aiomlc.models import AttentionConfig, DecoderConfig, LayerConfig, MlpConfig, RopeConfig

Install = Callable[[str], None]
LAYER = LayerConfig(
    mixer=AttentionConfig(
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        scale=0.25,
        rope=RopeConfig("linear", 10000.0, 2.0),
    ),
    feed_forward=MlpConfig(intermediate_size=64),
)
CONFIG = DecoderConfig(
    model_type="llama",
    vocab_size=64,
    hidden_size=32,
    context_window_size=128,
    norm_eps=1e-5,
    tie_word_embeddings=True,
    layers=(LAYER,),
)
JOB = CompileJob(config=CONFIG, quantization="q4f16_1")


def entries(home: Path) -> list[Path]:
    """Return the entries of the cache of libraries, hidden ones included."""
    return list((home / "libraries").iterdir()) if (home / "libraries").is_dir() else []
