"""What transformers assumes for fields that a config omits."""

from __future__ import annotations

__all__ = ("DEFAULTS", "Defaults")

from typing import NamedTuple


class Defaults(NamedTuple):
    norm_eps: float
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    sliding_window: int | None = None  #: With use_sliding_window, where the family has the field.


# From the classes in CONFIG_MAPPING of transformers 5.23, with no field given.
DEFAULTS = {
    "cohere": Defaults(1e-5, 500000.0, tie_word_embeddings=True),
    "ernie4_5": Defaults(1e-5, 500000.0, tie_word_embeddings=True),
    "exaone4": Defaults(1e-5, sliding_window=4096),
    "gemma": Defaults(1e-6, tie_word_embeddings=True),
    "gemma2": Defaults(1e-6, tie_word_embeddings=True, sliding_window=4096),
    "gemma3_text": Defaults(1e-6, 1000000.0, tie_word_embeddings=True, sliding_window=4096),
    "gemma3n_text": Defaults(1e-6, 1000000.0, tie_word_embeddings=True, sliding_window=512),
    "gemma4_text": Defaults(1e-6, 1000000.0, tie_word_embeddings=True, sliding_window=512),
    "gemma4_unified_text": Defaults(1e-6, 1000000.0, tie_word_embeddings=True, sliding_window=1024),
    "glm": Defaults(1.5625e-7),
    "glm4": Defaults(1.5625e-7),
    "gpt_neox": Defaults(1e-5),
    "gpt_oss": Defaults(1e-5, 150000.0, sliding_window=128),
    "granite": Defaults(1e-6),
    "granitemoehybrid": Defaults(1e-6),
    "helium": Defaults(1e-8, 100000.0),
    "internlm3": Defaults(1e-5),
    "lfm2": Defaults(1e-5, 1000000.0, tie_word_embeddings=True),
    "lfm2_moe": Defaults(1e-5, 1000000.0, tie_word_embeddings=True),
    "llama": Defaults(1e-6),
    "mistral": Defaults(1e-6, sliding_window=4096),
    "mixtral": Defaults(1e-5, 1000000.0),
    "nemotron": Defaults(1e-5),
    "olmo2": Defaults(1e-5),
    "olmo3": Defaults(1e-5, 500000.0, sliding_window=4096),
    "olmoe": Defaults(1e-5),
    "phi": Defaults(1e-5),
    "phi3": Defaults(1e-5),
    "qwen2": Defaults(1e-6, sliding_window=4096),
    "qwen2_moe": Defaults(1e-6, sliding_window=4096),
    "qwen3": Defaults(1e-6, sliding_window=4096),
    "qwen3_5_moe_text": Defaults(1e-6),
    "qwen3_5_text": Defaults(1e-6),
    "qwen3_moe": Defaults(1e-6, sliding_window=4096),
    "qwen3_next": Defaults(1e-6),
    "seed_oss": Defaults(1e-6),
    "smollm3": Defaults(1e-6, 2000000.0, tie_word_embeddings=True),
    "stablelm": Defaults(1e-5),
    "starcoder2": Defaults(1e-5, tie_word_embeddings=True),
}
