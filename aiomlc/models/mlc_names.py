"""Names of MLC's that differ from the graph's."""

from __future__ import annotations

__all__ = ("mlc_name",)

from collections.abc import Mapping

# By model type: parts of names, and what MLC has in their places.
_PARTS: Mapping[str, Mapping[str, str]] = {
    "phi3": {
        "model.embed_tokens": "transformer.embd",
        "model.layers.": "transformer.h.",
        "model.norm.": "transformer.norm.",
        ".input_layernorm.": ".ln.",
        ".self_attn.qkv_proj": ".mixer.qkv_proj",
        ".self_attn.o_proj": ".mixer.out_proj",
    },
}


def mlc_name(model_type: str, name: str) -> str:
    """MLC's name of a parameter of the graph."""
    for ours, theirs in _PARTS.get(model_type, {}).items():
        name = name.replace(ours, theirs)
    return name
