"""Tiny models of the families with LayerNorm, and the shapes of their tensors."""

from __future__ import annotations

__all__ = ("CONFIGS", "shapes")

from collections.abc import Callable, Mapping
from typing import Any

Shapes = dict[str, tuple[int, ...]]

_GPT_NEOX: dict[str, Any] = {
    "model_type": "gpt_neox",
    "architectures": ["GPTNeoXForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "use_parallel_residual": True,
    "rotary_pct": 0.25,
    "rotary_emb_base": 20000,
    "tie_word_embeddings": False,
}
_STABLELM: dict[str, Any] = {
    "model_type": "stablelm",
    "architectures": ["StableLmForCausalLM"],
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "layer_norm_eps": 1e-5,
    "use_qkv_bias": True,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
CONFIGS: Mapping[str, dict[str, Any]] = {
    "cohere": {
        "model_type": "cohere",
        "architectures": ["CohereForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "layer_norm_eps": 1e-5,
        "attention_bias": True,
        "logit_scale": 0.25,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    },
    "gpt_neox": _GPT_NEOX,
    "gpt_neox_serial": _GPT_NEOX | {"use_parallel_residual": False, "attention_bias": False},
    "nemotron": {
        "model_type": "nemotron",
        "architectures": ["NemotronForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "relu2",
        "norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    },
    "phi": {
        "model_type": "phi",
        "architectures": ["PhiForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    },
    "starcoder2": {
        "model_type": "starcoder2",
        "architectures": ["Starcoder2ForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": 1e-5,
        "use_bias": True,
        "sliding_window": 24,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
    "stablelm": _STABLELM,
    "stablelm_parallel": _STABLELM | {"use_qkv_bias": False, "use_parallel_residual": True},
}


def shapes(config: Mapping[str, Any]) -> Shapes:
    """Return the shapes of the tensors of one of these models, by name."""
    return _SHAPES[config["model_type"]](config)


def _cohere(config: Mapping[str, Any]) -> Shapes:
    hidden, inner, vocab = _sizes(config)
    result: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        result |= _norm(f"{at}.input_layernorm", hidden, bias=False)
        result |= _attention(at, config)
        result |= _linear(f"{at}.mlp.gate_proj", hidden, inner, bias=False)
        result |= _linear(f"{at}.mlp.up_proj", hidden, inner, bias=False)
        result |= _linear(f"{at}.mlp.down_proj", inner, hidden, bias=False)
    return result | _norm("model.norm", hidden, bias=False)


def _gpt_neox(config: Mapping[str, Any]) -> Shapes:
    hidden, inner, vocab = _sizes(config)
    bias = config.get("attention_bias", True)
    result: Shapes = {"gpt_neox.embed_in.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"gpt_neox.layers.{layer}"
        result |= _norm(f"{at}.input_layernorm", hidden)
        result |= _norm(f"{at}.post_attention_layernorm", hidden)
        result |= _linear(f"{at}.attention.query_key_value", hidden, 3 * hidden, bias=bias)
        result |= _linear(f"{at}.attention.dense", hidden, hidden, bias=bias)
        result |= _linear(f"{at}.mlp.dense_h_to_4h", hidden, inner)
        result |= _linear(f"{at}.mlp.dense_4h_to_h", inner, hidden)
    return (
        result | _norm("gpt_neox.final_layer_norm", hidden) | {"embed_out.weight": (vocab, hidden)}
    )


def _nemotron(config: Mapping[str, Any]) -> Shapes:
    hidden, inner, vocab = _sizes(config)
    result: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        result |= _norm(f"{at}.input_layernorm", hidden)
        result |= _norm(f"{at}.post_attention_layernorm", hidden)
        result |= _attention(at, config, bias=False, output_bias=False)
        result |= _linear(f"{at}.mlp.up_proj", hidden, inner, bias=False)
        result |= _linear(f"{at}.mlp.down_proj", inner, hidden, bias=False)
    return result | _norm("model.norm", hidden) | _linear("lm_head", hidden, vocab, bias=False)


def _phi(config: Mapping[str, Any]) -> Shapes:
    hidden, inner, vocab = _sizes(config)
    result: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        result |= _norm(f"{at}.input_layernorm", hidden)
        result |= _attention(at, config, output="dense")
        result |= _linear(f"{at}.mlp.fc1", hidden, inner)
        result |= _linear(f"{at}.mlp.fc2", inner, hidden)
    return result | _norm("model.final_layernorm", hidden) | _linear("lm_head", hidden, vocab)


def _starcoder2(config: Mapping[str, Any]) -> Shapes:
    hidden, inner, vocab = _sizes(config)
    result: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        result |= _norm(f"{at}.input_layernorm", hidden)
        result |= _norm(f"{at}.post_attention_layernorm", hidden)
        result |= _attention(at, config)
        result |= _linear(f"{at}.mlp.c_fc", hidden, inner)
        result |= _linear(f"{at}.mlp.c_proj", inner, hidden)
    return result | _norm("model.norm", hidden)


def _stablelm(config: Mapping[str, Any]) -> Shapes:
    hidden, inner, vocab = _sizes(config)
    result: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        result |= _norm(f"{at}.input_layernorm", hidden)
        if not config.get("use_parallel_residual"):
            result |= _norm(f"{at}.post_attention_layernorm", hidden)
        result |= _attention(at, config, bias=config["use_qkv_bias"], output_bias=False)
        result |= _linear(f"{at}.mlp.gate_proj", hidden, inner, bias=False)
        result |= _linear(f"{at}.mlp.up_proj", hidden, inner, bias=False)
        result |= _linear(f"{at}.mlp.down_proj", inner, hidden, bias=False)
    return result | _norm("model.norm", hidden) | {"lm_head.weight": (vocab, hidden)}


def _attention(
    at: str,
    config: Mapping[str, Any],
    *,
    output: str = "o_proj",
    bias: bool = True,
    output_bias: bool = True,
) -> Shapes:
    hidden = config["hidden_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    result = _linear(f"{at}.self_attn.q_proj", hidden, hidden, bias=bias)
    result |= _linear(f"{at}.self_attn.k_proj", hidden, keys, bias=bias)
    result |= _linear(f"{at}.self_attn.v_proj", hidden, keys, bias=bias)
    return result | _linear(f"{at}.self_attn.{output}", hidden, hidden, bias=output_bias)


def _sizes(config: Mapping[str, Any]) -> tuple[int, int, int]:
    return config["hidden_size"], config["intermediate_size"], config["vocab_size"]


def _linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Shapes:
    weight: Shapes = {f"{name}.weight": (outputs, inputs)}
    return weight | {f"{name}.bias": (outputs,)} if bias else weight


def _norm(name: str, size: int, *, bias: bool = True) -> Shapes:
    weight: Shapes = {f"{name}.weight": (size,)}
    return weight | {f"{name}.bias": (size,)} if bias else weight


_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Shapes]] = {
    "cohere": _cohere,
    "gpt_neox": _gpt_neox,
    "nemotron": _nemotron,
    "phi": _phi,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}
