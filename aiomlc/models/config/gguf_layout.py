"""How the weights of a GGUF file differ from those of the Hugging Face model it was made from."""

from __future__ import annotations

__all__ = ("with_gguf_layout",)

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from aiomlc.models.config.decoder import DecoderConfig, HFQKVLayout

#: Llama's two dimensions of a rotary pair are made neighbors, as they already are in Command R, and
#: the queries, keys and values of GPT-NeoX are separated.
_QKV_LAYOUTS: Mapping[str, HFQKVLayout] = MappingProxyType(
    {
        "gpt_neox": "concatenated",
        **dict.fromkeys(("granite", "llama", "mixtral", "smollm3"), "interleaved_rope"),
    }
)


def with_gguf_layout(config: DecoderConfig) -> DecoderConfig:
    """Return the config of a decoder whose weights are in a GGUF file.

    Norms that Hugging Face stores minus an offset include it there.
    """
    layout = _QKV_LAYOUTS.get(config.model_type, config.traits.hf_qkv_layout)
    return replace(
        config, traits=replace(config.traits, hf_qkv_layout=layout), norm_weight_offset=0.0
    )
