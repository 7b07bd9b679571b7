"""Names of the graph's tensors in Hugging Face and MLC directories, where they differ."""

from __future__ import annotations

__all__ = ("fused_name", "hf_name", "mlc_name", "mlc_parts")

from collections.abc import Mapping

_Replacements = Mapping[str, Mapping[str, str]]

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
_GEMMA4_TEXT = {
    ".mlp.gate.": ".router.proj.",
    ".mlp.expert_scales": ".router.per_expert_scale",
    ".mlp.experts.": ".experts.",
    ".mlp.post_dense_norm.": ".post_feedforward_layernorm_1.",
    ".mlp.pre_experts_norm.": ".pre_feedforward_layernorm_2.",
    ".mlp.post_experts_norm.": ".post_feedforward_layernorm_2.",
    ".mlp.router_norm.weight": ".router.scale",
}
_GEMMA4 = {"model.": "model.language_model.", **_GEMMA4_TEXT}
_LFM2 = {
    "model.norm.": "model.embedding_norm.",
    ".input_layernorm.": ".operator_norm.",
    ".post_attention_layernorm.": ".ffn_norm.",
    ".self_attn.o_proj": ".self_attn.out_proj",
    ".q_norm.": ".q_layernorm.",
    ".k_norm.": ".k_layernorm.",
    ".mlp.": ".feed_forward.",
    ".gate_proj.": ".w1.",
    ".up_proj.": ".w3.",
    ".down_proj.": ".w2.",
}
_MODERNBERT = {
    "model.embed_tokens": "embeddings.tok_embeddings",
    "model.layers.": "layers.",
    "model.norm.": "final_norm.",
    ".input_layernorm.": ".attn_norm.",
    ".post_attention_layernorm.": ".mlp_norm.",
    ".self_attn.qkv_proj": ".attn.Wqkv",
    ".self_attn.o_proj": ".attn.Wo",
    ".mlp.gate_up_proj": ".mlp.Wi",
    ".mlp.down_proj": ".mlp.Wo",
}
_LANGUAGE_MODEL = {"model.": "model.language_model."}
# The text towers of CLIP and SigLIP.
_TEXT_TOWER = {
    "model.embed_tokens": "text_model.embeddings.token_embedding",
    "model.layers.": "text_model.encoder.layers.",
    "model.norm.": "text_model.final_layer_norm.",
    ".input_layernorm.": ".layer_norm1.",
    ".post_attention_layernorm.": ".layer_norm2.",
    ".self_attn.o_proj": ".self_attn.out_proj",
    ".mlp.up_proj": ".mlp.fc1",
    ".mlp.down_proj": ".mlp.fc2",
}
_STARCODER2 = {".mlp.up_proj": ".mlp.c_fc", ".mlp.down_proj": ".mlp.c_proj"}

# By model type: segments of the graph's names, and their replacements.
_HF: _Replacements = {
    "clip": _TEXT_TOWER,
    "gemma3": _GEMMA3,
    "gemma3n": {"model.": "model.language_model."},
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4_TEXT,
    "gemma4_unified": _GEMMA4,
    "glm4": {
        ".post_attention_layernorm.": ".post_self_attn_layernorm.",
        ".pre_feedforward_layernorm.": ".post_attention_layernorm.",
        ".post_feedforward_layernorm.": ".post_mlp_layernorm.",
    },
    "gpt_neox": _GPT_NEOX,
    "gpt_oss": {".mlp.gate.": ".mlp.router.", ".self_attn.sinks.weight": ".self_attn.sinks"},
    "granitemoehybrid": {
        ".mlp.gate_up_proj": ".shared_mlp.input_linear",
        ".mlp.down_proj": ".shared_mlp.output_linear",
    },
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
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
    "modernbert": _MODERNBERT,
    "qwen3_5": _LANGUAGE_MODEL,
    "qwen3_5_moe": _LANGUAGE_MODEL,
    "qwen3_vl": _LANGUAGE_MODEL,
    "qwen3_vl_moe": _LANGUAGE_MODEL,
    "siglip": _TEXT_TOWER,
    "starcoder2": _STARCODER2,
}
_MLC: _Replacements = {
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


# Model types whose queries, keys and values are separate matrices in MLC directories.
_MLC_SEPARATE = ("gemma3", "gemma3_text")
_QKV = ".self_attn.qkv_proj"


def mlc_parts(model_type: str, name: str) -> tuple[str, ...]:
    """Return the MLC parameters that are concatenated into `name`; empty if MLC stores one."""
    if model_type not in _MLC_SEPARATE or _QKV not in name:
        return ()

    parts = (name.replace(_QKV, f".self_attn.{part}_proj") for part in "qkv")
    return tuple(mlc_name(model_type, part) for part in parts)


def hf_name(model_type: str, name: str) -> str:
    """Return the Hugging Face name of the tensor that the graph calls `name`."""
    return _renamed(name, _HF.get(model_type, {}))


def fused_name(model_type: str, name: str) -> str:
    """Return the Hugging Face name of a fused tensor; those of Mixtral are below `mlp`."""
    return name if model_type == "mixtral" else hf_name(model_type, name)


def mlc_name(model_type: str, name: str) -> str:
    """Return MLC's name of the parameter that the graph calls `name`."""
    return _renamed(name, _MLC.get(model_type, {}))


def _renamed(name: str, replacements: Mapping[str, str]) -> str:
    for segment, replacement in replacements.items():
        name = name.replace(segment, replacement)
    return name
