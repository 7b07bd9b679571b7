"""What directories of Hugging Face's and MLC's call differently from the graph."""

from __future__ import annotations

__all__ = ("hf_name", "mlc_name", "mlc_parts")

from collections.abc import Mapping

_Parts = Mapping[str, Mapping[str, str]]

_GPT_NEOX = {
    "model.embed_tokens": "gpt_neox.embed_in",
    "model.layers.": "gpt_neox.layers.",
    "model.norm.": "gpt_neox.final_layer_norm.",
    ".self_attn.qkv_proj": ".attention.query_key_value",
    ".self_attn.o_proj": ".attention.dense",
    ".mlp.up_proj": ".mlp.dense_h_to_4h",
    ".mlp.down_proj": ".mlp.dense_4h_to_h",
    "lm_head": "embed_out",
}
_GEMMA3 = {"model.": "language_model.model.", "lm_head": "language_model.lm_head"}
_STARCODER2 = {".mlp.up_proj": ".mlp.c_fc", ".mlp.down_proj": ".mlp.c_proj"}

# By model type: parts of names, and what stands in their places.
_HUB: _Parts = {
    "gemma3": _GEMMA3,
    "glm4": {
        ".post_attention_layernorm.": ".post_self_attn_layernorm.",
        ".pre_feedforward_layernorm.": ".post_attention_layernorm.",
        ".post_feedforward_layernorm.": ".post_mlp_layernorm.",
    },
    "gpt_neox": _GPT_NEOX,
    "granitemoehybrid": {
        ".mlp.gate_up_proj": ".shared_mlp.input_linear",
        ".mlp.down_proj": ".shared_mlp.output_linear",
    },
    "mixtral": {
        ".mlp.": ".block_sparse_moe.",
        ".gate_proj.": ".w1.",
        ".up_proj.": ".w3.",
        ".down_proj.": ".w2.",
    },
    "phi": {
        "model.norm.": "model.final_layernorm.",
        ".self_attn.o_proj": ".self_attn.dense",
        ".mlp.up_proj": ".mlp.fc1",
        ".mlp.down_proj": ".mlp.fc2",
    },
    "starcoder2": _STARCODER2,
}
_MLC: _Parts = {
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gpt_neox": _GPT_NEOX,
    "mixtral": {
        ".mlp.gate": ".moe.gate",
        ".mlp.moe_gate_up_proj": ".moe.e1_e3",
        ".mlp.moe_down_proj": ".moe.e2",
    },
    "phi": {
        "lm_head": "lm_head.linear",
        "model.embed_tokens": "transformer.embd",
        "model.layers.": "transformer.h.",
        "model.norm.": "lm_head.ln.",
        ".input_layernorm.": ".ln.",
        ".self_attn.qkv_proj": ".mixer.Wqkv",
        ".self_attn.o_proj": ".mixer.out_proj",
        ".mlp.up_proj": ".mlp.fc1",
        ".mlp.down_proj": ".mlp.fc2",
    },
    "phi3": {
        "model.embed_tokens": "transformer.embd",
        "model.layers.": "transformer.h.",
        "model.norm.": "transformer.norm.",
        ".input_layernorm.": ".ln.",
        ".self_attn.qkv_proj": ".mixer.qkv_proj",
        ".self_attn.o_proj": ".mixer.out_proj",
    },
    "starcoder2": _STARCODER2 | {".self_attn.qkv_proj": ".self_attn.wqkv_pack"},
}


# Where MLC does not fuse queries, keys and values.
_MLC_SEPARATE = ("gemma3", "gemma3_text")
_QKV = ".self_attn.qkv_proj"


def mlc_parts(model_type: str, name: str) -> tuple[str, ...]:
    """MLC's parameters that a parameter of the graph is stacked from; empty if it is one there."""
    if model_type not in _MLC_SEPARATE or _QKV not in name:
        return ()

    separate = (name.replace(_QKV, f".self_attn.{part}_proj") for part in "qkv")
    return tuple(mlc_name(model_type, part) for part in separate)


def hf_name(model_type: str, name: str) -> str:
    """Hugging Face's name of a tensor that the graph would call so."""
    return _renamed(name, _HUB.get(model_type, {}))


def mlc_name(model_type: str, name: str) -> str:
    """MLC's name of a parameter of the graph."""
    return _renamed(name, _MLC.get(model_type, {}))


def _renamed(name: str, parts: Mapping[str, str]) -> str:
    for ours, theirs in parts.items():
        name = name.replace(ours, theirs)
    return name
