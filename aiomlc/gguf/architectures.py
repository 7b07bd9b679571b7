"""The architectures of GGUF that can be opened, and what their files call the fields of a config.

The names and the units are those of llama.cpp's converter and of its loader.
"""

from __future__ import annotations

__all__ = ("ARCHITECTURES", "Architecture", "find_architecture")

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from aiomlc.gguf import architecture_fields as fields
from aiomlc.gguf import gemma3n
from aiomlc.gguf.gemma4 import LAYER_NAMES, gemma4_fields
from aiomlc.gguf.model import GGUFModel
from aiomlc.validation.json_values import safe_repr

_RMS_EPS = "attention.layer_norm_rms_epsilon"
_LAYER_EPS = "attention.layer_norm_epsilon"
_WINDOW = {"sliding_window": "attention.sliding_window"}
_EXPERTS = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
_SHARED_EXPERTS = {
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    **_EXPERTS,
}

Extra = Callable[[GGUFModel, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The keys and tensors of one GGUF architecture, and the config that they become."""

    model_type: str  #: Of Hugging Face.
    norm_eps: tuple[str, str] = ("rms_norm_eps", _RMS_EPS)  #: Field of a config, and suffix of key.
    #: Suffixes of the keys of integers and numbers, by field of a config; absent keys are left out.
    integers: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    booleans: Mapping[str, str] = field(default_factory=dict)
    #: Tensors of layer 0, by boolean field of a config that says whether they exist.
    tensors: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)  #: Further fields of a config.
    #: The layer type of layers without key heads, which are recurrent.
    recurrent_type: str = ""
    #: The graph's names of further tensors of a layer.
    layer_names: Mapping[str, str] = field(default_factory=dict)
    last_norm: str = "output_norm"  #: The name of the norm before the output head.
    extra: Extra | None = None  #: Computes further fields from those read so far.
    is_sandwich: bool = False  #: Whether there are norms on the inputs and outputs of both layers.
    has_unequal_layers: bool = False  #: Whether `extra` reads key heads and widths of layers.
    has_fused_qkv: bool = False  #: Whether the graph's source is one tensor for QKV.
    has_fused_gate_up: bool = False  #: Whether `ffn_up` contains the gate, too.
    is_encoder: bool = False  #: Whether the sources of the graph have GGUF's names.


_DELTA_NETS = {
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "full_attention_interval": "full_attention_interval",
}
_DELTA_NET_EXPERTS = _SHARED_EXPERTS | _DELTA_NETS
_DELTA_NET_FORMS = {"linear_heads_are_tiled": True, "linear_rates_are_negative": True}
_DELTA_NET_NAMES = {
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
}
_SHORT_CONV_NAMES = {
    f"shortconv.{part}.{kind}": f"conv.{part}.{kind}"
    for part in ("in_proj", "conv", "out_proj")
    for kind in ("weight", "bias")
}

_NO_WINDOW = {"sliding_window": None, "use_sliding_window": False}
_ATTENTION_BIAS = {"attention_bias": "attn_q.bias"}
_LAYER_NORM = ("layer_norm_eps", _LAYER_EPS)

#: By `general.architecture`.
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "bert": Architecture(
            model_type="bert", norm_eps=_LAYER_NORM, extra=fields.encoder, is_encoder=True
        ),
        "chatglm": Architecture(model_type="glm", tensors=_ATTENTION_BIAS, has_fused_gate_up=True),
        "command-r": Architecture(
            model_type="cohere",
            norm_eps=_LAYER_NORM,
            numbers={"logit_scale": "logit_scale"},
            tensors={"use_qk_norm": "attn_q_norm.weight", **_ATTENTION_BIAS},
        ),
        "ernie4_5": Architecture(model_type="ernie4_5", tensors={"use_bias": "attn_q.bias"}),
        "exaone4": Architecture(model_type="exaone4", integers=_WINDOW, extra=fields.exaone4),
        "gemma": Architecture(model_type="gemma", tensors=_ATTENTION_BIAS),
        "gemma2": Architecture(
            model_type="gemma2",
            integers=_WINDOW,
            numbers={
                "attn_logit_softcapping": "attn_logit_softcapping",
                "final_logit_softcapping": "final_logit_softcapping",
            },
            tensors=_ATTENTION_BIAS,
            extra=fields.gemma_attention_scale,
            is_sandwich=True,
        ),
        "gemma3": Architecture(
            model_type="gemma3_text",
            integers=_WINDOW,
            numbers={
                "final_logit_softcapping": "final_logit_softcapping",
                "rope_local_base_freq": "rope.freq_base_swa",
            },
            tensors=_ATTENTION_BIAS,
            extra=fields.gemma3,
            is_sandwich=True,
        ),
        "gemma3n": Architecture(
            model_type="gemma3n_text",
            integers={
                **_WINDOW,
                "altup_active_idx": "altup.active_idx",
                "altup_num_inputs": "altup.num_inputs",
                "num_kv_shared_layers": "attention.shared_kv_layers",
            },
            numbers={"final_logit_softcapping": "final_logit_softcapping"},
            tensors={"altup_correct_scale": "altup_correct_scale.weight", **_ATTENTION_BIAS},
            layer_names=gemma3n.LAYER_NAMES,
            extra=gemma3n.gemma3n_fields,
            is_sandwich=True,
            has_unequal_layers=True,
        ),
        "gemma4": Architecture(
            model_type="gemma4_text",
            integers={
                **_WINDOW,
                "num_experts": "expert_count",
                "top_k_experts": "expert_used_count",
                "moe_intermediate_size": "expert_feed_forward_length",
            },
            numbers={"final_logit_softcapping": "final_logit_softcapping"},
            tensors=_ATTENTION_BIAS,
            layer_names=LAYER_NAMES,
            extra=gemma4_fields,
            is_sandwich=True,
            has_unequal_layers=True,
        ),
        "glm4": Architecture(
            model_type="glm4",
            tensors=_ATTENTION_BIAS,
            is_sandwich=True,
            has_fused_gate_up=True,
        ),
        "gptneox": Architecture(
            model_type="gpt_neox",
            norm_eps=_LAYER_NORM,
            booleans={"use_parallel_residual": "use_parallel_residual"},
            tensors={"attention_bias": "attn_qkv.bias"},
            has_fused_qkv=True,
        ),
        "gpt-oss": Architecture(
            model_type="gpt_oss",
            integers={**_WINDOW, **_EXPERTS},
            tensors=_ATTENTION_BIAS,
            extra=fields.gpt_oss,
        ),
        "granite": Architecture(
            model_type="granite",
            numbers={
                "embedding_multiplier": "embedding_scale",
                "residual_multiplier": "residual_scale",
                "attention_multiplier": "attention.scale",
                "logits_scaling": "logit_scale",
            },
            tensors={"mlp_bias": "ffn_down.bias", **_ATTENTION_BIAS},
        ),
        "lfm2": Architecture(
            model_type="lfm2",
            norm_eps=("norm_eps", _RMS_EPS),
            integers={"conv_L_cache": "shortconv.l_cache"},
            tensors={"conv_bias": "shortconv.conv.bias"},
            constants={"block_auto_adjust_ff_dim": False},
            recurrent_type="conv",
            last_norm="token_embd_norm",
            layer_names=_SHORT_CONV_NAMES,
        ),
        "lfm2moe": Architecture(
            model_type="lfm2_moe",
            norm_eps=("norm_eps", _RMS_EPS),
            integers={
                "conv_L_cache": "shortconv.l_cache",
                "num_dense_layers": "leading_dense_block_count",
                "moe_intermediate_size": "expert_feed_forward_length",
                **_EXPERTS,
            },
            numbers={"routed_scaling_factor": "expert_weights_scale"},
            booleans={"norm_topk_prob": "expert_weights_norm"},
            tensors={"conv_bias": "shortconv.conv.bias"},
            recurrent_type="conv",
            last_norm="token_embd_norm",
            layer_names={"exp_probs_b.bias": "mlp.expert_bias", **_SHORT_CONV_NAMES},
            extra=fields.lfm2moe,
        ),
        "jina-bert-v2": Architecture(
            model_type="bert", norm_eps=_LAYER_NORM, extra=fields.jina_bert, is_encoder=True
        ),
        "llama": Architecture(
            model_type="llama",
            integers=_EXPERTS,
            tensors={"mlp_bias": "ffn_down.bias", **_ATTENTION_BIAS},
            extra=fields.llama,
        ),
        "nemotron": Architecture(
            model_type="nemotron",
            norm_eps=("norm_eps", _LAYER_EPS),
            tensors={"mlp_bias": "ffn_down.bias", **_ATTENTION_BIAS},
        ),
        "nomic-bert": Architecture(
            model_type="nomic_bert", norm_eps=_LAYER_NORM, extra=fields.encoder, is_encoder=True
        ),
        "olmo2": Architecture(
            model_type="olmo2", integers=_WINDOW, tensors=_ATTENTION_BIAS, extra=fields.olmo2
        ),
        "olmoe": Architecture(
            model_type="olmoe",
            integers=_EXPERTS,
            booleans={"norm_topk_prob": "expert_weights_norm"},
            tensors=_ATTENTION_BIAS,
        ),
        "phi2": Architecture(model_type="phi", norm_eps=_LAYER_NORM, extra=fields.phi2),
        "phi3": Architecture(
            model_type="phi3",
            integers=_WINDOW,
            has_fused_qkv=True,
            has_fused_gate_up=True,
        ),
        "qwen2": Architecture(model_type="qwen2", constants=_NO_WINDOW),
        "qwen2moe": Architecture(
            model_type="qwen2_moe",
            integers=_SHARED_EXPERTS,
            booleans={"norm_topk_prob": "expert_weights_norm"},
            tensors={"qkv_bias": "attn_q.bias"},
            constants=_NO_WINDOW,
        ),
        "qwen2vl": Architecture(model_type="qwen2_vl", constants=_NO_WINDOW),
        "qwen3": Architecture(model_type="qwen3", tensors=_ATTENTION_BIAS, constants=_NO_WINDOW),
        "qwen35": Architecture(
            model_type="qwen3_5_text",
            integers=_DELTA_NETS,
            constants=_DELTA_NET_FORMS,
            layer_names=_DELTA_NET_NAMES,
            extra=fields.qwen35,
        ),
        "qwen35moe": Architecture(
            model_type="qwen3_5_moe_text",
            integers=_DELTA_NET_EXPERTS,
            constants=_DELTA_NET_FORMS,
            layer_names=_DELTA_NET_NAMES,
            extra=fields.qwen35,
        ),
        "qwen3moe": Architecture(
            model_type="qwen3_moe",
            integers={"moe_intermediate_size": "expert_feed_forward_length", **_EXPERTS},
            tensors=_ATTENTION_BIAS,
            constants={"norm_topk_prob": True, **_NO_WINDOW},
        ),
        "qwen3vl": Architecture(
            model_type="qwen3_vl",
            tensors=_ATTENTION_BIAS,
            constants=_NO_WINDOW,
            extra=fields.deepstack,
        ),
        "qwen3vlmoe": Architecture(
            model_type="qwen3_vl_moe",
            integers={"moe_intermediate_size": "expert_feed_forward_length", **_EXPERTS},
            tensors=_ATTENTION_BIAS,
            constants=_NO_WINDOW,
            extra=fields.deepstack,
        ),
        "qwen3next": Architecture(
            model_type="qwen3_next",
            integers=_DELTA_NET_EXPERTS,
            constants={"linear_rates_are_negative": True},
            layer_names=_DELTA_NET_NAMES
            | {
                "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
                "ssm_in.weight": "linear_attn.in_proj_qkvz.weight",  # Of files of 2025.
            },
            extra=fields.qwen35,
        ),
        "seed_oss": Architecture(
            model_type="seed_oss",
            tensors={"attention_out_bias": "attn_output.bias", **_ATTENTION_BIAS},
        ),
        "smollm3": Architecture(
            model_type="smollm3",
            tensors={"mlp_bias": "ffn_down.bias", **_ATTENTION_BIAS},
            constants={"no_rope_layer_interval": 4},
        ),
        "stablelm": Architecture(
            model_type="stablelm",
            norm_eps=_LAYER_NORM,
            booleans={"use_parallel_residual": "use_parallel_residual"},
            tensors={"use_qkv_bias": "attn_q.bias", "qk_layernorm": "attn_q_norm.weight"},
        ),
        "starcoder2": Architecture(
            model_type="starcoder2",
            norm_eps=("norm_epsilon", _LAYER_EPS),
            integers=_WINDOW,
            tensors={"use_bias": "attn_q.bias"},
        ),
    }
)


def find_architecture(model: GGUFModel) -> Architecture:
    """Return the architecture of a model.

    Raises:
        ModelLoadError: If it is missing or cannot be opened, or the file contains no model.
    """
    kind = model.metadata.string("general.type", "model")
    if kind != "model":
        raise model.metadata.error("general.type", f"must be 'model', got {safe_repr(kind)}")

    name = model.architecture
    if name not in ARCHITECTURES:
        problem = f"must be one of {', '.join(ARCHITECTURES)}, got {safe_repr(name)}"
        raise model.metadata.error("general.architecture", problem)

    return ARCHITECTURES[name]
