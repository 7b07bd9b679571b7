"""Tiny random models as Hugging Face directories, generated from a seed without torch."""

from __future__ import annotations

__all__ = (
    "COMMON",
    "DISTINCT",
    "FORKED_ANYWHERE",
    "TEMPLATE",
    "TINY_CONFIGS",
    "VOCAB_SIZE",
    "Weights",
    "dequantized",
    "tiny_tokenizer",
    "tiny_weights",
    "write_model",
)

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.model import (
    tiny_gemma3n,
    tiny_gemma4,
    tiny_gpt_oss,
    tiny_layer_norm,
    tiny_recurrent,
    tiny_variants,
)
from tests.model.tiny_experts import EXPERT_CONFIGS, add_experts
from tests.model.weight_files import dequantize, quantize

Weights = dict[str, NDArray[np.float32]]
RoundRows = Callable[[NDArray[np.float32]], NDArray[np.float32]]

VOCAB_SIZE = 320
_ROUTERS = (".gate.weight", "expert_gate.weight", "router.weight", "router.proj.weight")
_FLOAT32 = (*_ROUTERS, *tiny_recurrent.FLOAT32_MATRICES, *tiny_gemma3n.FLOAT32_MATRICES)
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
COMMON = {
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "bos_token_id": 256,
    "eos_token_id": 257,
    "torch_dtype": "float32",
}
_MISTRAL: dict[str, Any] = COMMON | {
    "model_type": "mistral",
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 96,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
_QWEN2: dict[str, Any] = COMMON | {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "rope_theta": 1000000.0,
}
_PHI3: dict[str, Any] = COMMON | {
    "model_type": "phi3",
    "architectures": ["Phi3ForCausalLM"],
    "hidden_size": 96,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 512,
}
_PHI3_FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
# 18 of the 24 dimensions of a head are rotated.
_PHI3_LONG: dict[str, Any] = _PHI3 | {
    "tie_word_embeddings": True,
    "partial_rotary_factor": 0.75,
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2.0],
        "long_factor": [1.1, 1.3, 1.7, 2.5, 4.0, 7.0, 11.0, 20.0, 32.0],
    },
}
_GEMMA_COMMON = {name: value for name, value in COMMON.items() if name != "hidden_act"}
_GEMMA: dict[str, Any] = {
    **_GEMMA_COMMON,
    "model_type": "gemma",
    "architectures": ["GemmaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
}
TINY_CONFIGS: Mapping[str, dict[str, Any]] = {
    "llama": COMMON
    | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "llama_bias": COMMON
    | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
    "mistral": _MISTRAL,
    "qwen2": _QWEN2,
    "qwen3": COMMON
    | {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "rope_theta": 1000000.0,
    },
    "granite": COMMON
    | {
        "model_type": "granite",
        "architectures": ["GraniteForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.1,
        "logits_scaling": 0.5,
    },
    "olmo2": COMMON
    | {
        "model_type": "olmo2",
        "architectures": ["Olmo2ForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": None,
        "tie_word_embeddings": False,
        "rope_theta": 500000.0,
    },
    "phi3": _PHI3 | {"sliding_window": 24},
    # Transformers selects the factors by sequence length: the whole reference exceeds 32 tokens.
    "phi3_long": _PHI3_LONG | {"original_max_position_embeddings": 32},
    "phi3_short": _PHI3_LONG | {"original_max_position_embeddings": 512},
    **{name: COMMON | config for name, config in EXPERT_CONFIGS.items()},
    # Windows shorter than the reference's prompt: in every layer, and in the last layer only.
    "mistral_window": _MISTRAL | {"sliding_window": 24},
    "qwen2_window": _QWEN2
    | {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    "gemma": _GEMMA,
    "gemma2": _GEMMA
    | {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "num_key_value_heads": 2,
        "query_pre_attn_scalar": 24,
        "sliding_window": 20,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 1.5,
    },
    "gemma3_text": _GEMMA
    | {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "num_key_value_heads": 2,
        "query_pre_attn_scalar": 24,
        "sliding_window": 20,
        "sliding_window_pattern": 2,
        "rope_theta": 20000.0,
        "rope_local_base_freq": 300.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    **{name: COMMON | config for name, config in tiny_layer_norm.CONFIGS.items()},
    **{name: COMMON | config for name, config in tiny_variants.CONFIGS.items()},
    **{name: COMMON | config for name, config in tiny_recurrent.CONFIGS.items()},
    "gpt_oss": COMMON | tiny_gpt_oss.CONFIG,
    "gemma3n_text": _GEMMA_COMMON | tiny_gemma3n.CONFIG,
    **{name: _GEMMA_COMMON | config for name, config in tiny_gemma4.CONFIGS.items()},
}


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner, vocab = (
        config["hidden_size"],
        config["intermediate_size"],
        config["vocab_size"],
    )
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    heads, kv_heads = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (heads, hidden),
            f"{at}.self_attn.k_proj.weight": (kv_heads, hidden),
            f"{at}.self_attn.v_proj.weight": (kv_heads, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, heads),
            f"{at}.mlp.gate_proj.weight": (inner, hidden),
            f"{at}.mlp.up_proj.weight": (inner, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, inner),
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.post_attention_layernorm.weight": (hidden,),
        }
        if config["model_type"] == "phi3":
            _fuse_phi3(shapes, at)
        for part in _parts_with_bias(config):
            shapes[f"{at}.{part}.bias"] = shapes[f"{at}.{part}.weight"][:1]
        add_experts(shapes, config, layer)
        shapes |= {f"{at}.{name}.weight": (size,) for name, size in _extra_norms(config).items()}
        if config["model_type"] in ("olmo2", "olmo3"):
            del shapes[f"{at}.input_layernorm.weight"]
            shapes |= {
                f"{at}.post_feedforward_layernorm.weight": (hidden,),
                f"{at}.self_attn.q_norm.weight": (heads,),
                f"{at}.self_attn.k_norm.weight": (kv_heads,),
            }
        tiny_variants.adapt(config, shapes, at)
        if config["model_type"] == "gpt_oss":
            tiny_gpt_oss.adapt(config, shapes, at)
        tiny_recurrent.adapt_recurrent(config, shapes, layer)
    norm = "embedding_norm" if config["model_type"].startswith("lfm2") else "norm"
    shapes[f"model.{norm}.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def _fuse_phi3(shapes: dict[str, tuple[int, ...]], at: str) -> None:
    for fused, parts in _PHI3_FUSED.items():
        tensors = [shapes.pop(f"{at}.{part}.weight") for part in parts]
        shapes[f"{at}.{fused}.weight"] = (sum(rows for rows, _ in tensors), tensors[0][1])


def _extra_norms(config: Mapping[str, Any]) -> dict[str, int]:
    norms: dict[str, int] = {}
    if config["model_type"] in ("qwen3", "qwen3_moe", "gemma3_text"):
        norms |= dict.fromkeys(("self_attn.q_norm", "self_attn.k_norm"), config["head_dim"])
    if config["model_type"] in ("gemma2", "gemma3_text"):
        names = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
        norms |= dict.fromkeys(names, config["hidden_size"])
    return norms


def _parts_with_bias(config: Mapping[str, Any]) -> Iterator[str]:
    everywhere = config.get("use_bias", False)
    is_qwen2 = config["model_type"] in ("qwen2", "qwen2_moe")
    if config.get("attention_bias", everywhere) or is_qwen2:
        yield from ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    if config.get("attention_out_bias", config.get("attention_bias", everywhere)):
        yield "self_attn.o_proj"
    if config.get("mlp_bias", everywhere):
        yield from ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


#: Models with all kinds of parameters and layers, for what does not depend on the architecture.
DISTINCT = (
    "llama_bias",
    "phi3_long",
    "gemma3_text",
    "qwen3_moe",
    "cohere",
    "gpt_neox",
    "qwen3_5_text",
)

#: Models without recurrent layers, whose sequences can be cut after every token.
FORKED_ANYWHERE = tuple(name for name in TINY_CONFIGS if name not in tiny_recurrent.CONFIGS)


def tiny_weights(architecture: str) -> Weights:
    """Return the float32 weights of one tiny model, identical on every machine."""
    return random_weights(TINY_CONFIGS[architecture], sum(architecture.encode()))


def random_weights(config: Mapping[str, Any], seed: int) -> Weights:
    """Return float32 weights for a config of one of the tiny models' families."""
    random = np.random.Generator(np.random.PCG64(seed))
    weights: Weights = {}
    is_gemma = config["model_type"].startswith("gemma")
    families = {each["model_type"] for each in tiny_layer_norm.CONFIGS.values()}
    shapes = tiny_layer_norm.shapes if config["model_type"] in families else _shapes
    if config["model_type"].startswith("gemma4"):
        shapes = tiny_gemma4.shapes
    if config["model_type"] == "gemma3n_text":
        shapes = tiny_gemma3n.shapes
    for name, shape in shapes(config).items():
        values = random.standard_normal(shape)
        scaled = _special_values(config, name, values)
        if scaled is None:
            scaled = _plain_values(
                name, values, is_tied=config["tie_word_embeddings"], is_gemma=is_gemma
            )
        weights[name] = scaled.astype(np.float32)
    return weights


def _special_values(
    config: Mapping[str, Any], name: str, values: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the values of weights that only some families have; None for the others."""
    if name.endswith(tiny_recurrent.CALM):
        return tiny_recurrent.calm(name, values)

    if ".mlp.experts." in name and config["model_type"] == "gpt_oss":
        scaled: NDArray[np.float64] = tiny_gpt_oss.scale(name, values.shape) * values
        return scaled

    if name.endswith("norm.weight") and config["model_type"].startswith(("qwen3_5", "qwen3_next")):
        return 0.1 * values

    if config["model_type"].startswith("gemma4"):
        return tiny_gemma4.special_values(name, values)

    if config["model_type"] == "gemma3n_text":
        return tiny_gemma3n.special_values(name, values)

    return None


def _plain_values(
    name: str, values: NDArray[np.float64], *, is_tied: bool, is_gemma: bool
) -> NDArray[np.float64]:
    if name.endswith("norm.weight"):
        return 0.1 * values + (0.0 if is_gemma else 1.0)

    if name.endswith("bias"):
        return 0.2 * values

    if name.endswith(_ROUTERS):  # Large logits, so that the choice of experts is rarely close.
        return values * (2.0 / math.sqrt(values.shape[-1]))

    if "embed" not in name or name == "embed_out.weight":
        return values * (1.0 / math.sqrt(values.shape[-1]))

    # With larger embeddings, a tied head would repeat its input.
    return (0.05 if is_gemma else 0.2) * values if is_tied else values


def round_q4(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a matrix rounded to `q4f16_1`."""
    return dequantize(*quantize(rows))


def dequantized(weights: Weights, round_rows: RoundRows = round_q4) -> Weights:
    """Return the weights with rounded matrices; routers and biases are not rounded."""
    return {name: _rounded(round_rows, name, value) for name, value in weights.items()}


def _rounded(round_rows: RoundRows, name: str, value: NDArray[np.float32]) -> NDArray[np.float32]:
    if name.endswith(("bias", *_FLOAT32)):  # Biases of experts have two axes, too.
        return value

    if value.ndim == 2:
        return round_rows(value)

    return _round_experts(round_rows, name, value) if ".experts." in name else value


def _round_experts(
    round_rows: RoundRows, name: str, value: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return rounded experts, whose outputs are rows except in gpt-oss."""
    if ".mlp.experts." in name:
        return tiny_gpt_oss.by_outputs(round_rows, value)

    return round_rows(value.reshape(-1, value.shape[-1])).reshape(value.shape)


def tiny_tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<s>", "</s>", *(f"<|{i}|>" for i in range(VOCAB_SIZE - len(alphabet) - 2))]
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in specials])
    return tokenizer


def write_safetensors(path: Path, weights: Weights) -> None:
    """Write float32 tensors in the safetensors format."""
    header: dict[str, Any] = {}
    offset = 0
    for name, value in weights.items():
        end = offset + value.nbytes
        header[name] = {"dtype": "F32", "shape": value.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in weights.values():
            file.write(value.tobytes())


def write_model(directory: Path, architecture: str, weights: Weights | None = None) -> Path:
    """Write one tiny model as a Hugging Face directory and return the directory.

    Args:
        weights: Other ones than `tiny_weights`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(TINY_CONFIGS[architecture]))
    tiny_tokenizer().save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATE, "eos_token": "</s>"})
    )
    write_safetensors(directory / "model.safetensors", weights or tiny_weights(architecture))
    return directory
