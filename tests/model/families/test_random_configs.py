"""Random configs of uneven families: equal to transformers, or refused by a typed error."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.errors import ModelLoadError
from aiomlc.models.parameters.packed_layout import TILE_ROWS
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.make_reference import live_model
from tests.model.tiny_models import (
    COMMON,
    VOCAB_SIZE,
    Weights,
    random_weights,
    tiny_tokenizer,
    write_safetensors,
)

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
    pytest.mark.sampled(seed=tuple(range(9))),
]
LENGTH = 90


def _draw_common(choose: random.Random) -> dict[str, Any]:
    kv_heads = choose.choice((1, 2, 3))
    heads = kv_heads * choose.choice((1, 2, 4))
    return COMMON | {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": heads * 2 * choose.choice((8, 16)),
        "intermediate_size": choose.choice((64, 96, 200)),
        "tie_word_embeddings": choose.random() < 0.5,
        "pad_token_id": None,
    }


def _draw_lfm2(choose: random.Random) -> dict[str, Any]:
    layers = choose.randrange(1, 5)
    types = [choose.choice(("conv", "full_attention")) for _ in range(layers)]
    return _draw_common(choose) | {
        "model_type": "lfm2",
        "num_hidden_layers": layers,
        "layer_types": types,
        "conv_L_cache": choose.choice((1, 2, 3, 4, 7)),
        "conv_bias": choose.random() < 0.5,
        "norm_eps": 1e-5,
        "block_auto_adjust_ff_dim": False,
        "rope_theta": choose.choice((10000.0, 1000000.0)),
    }


def _draw_lfm2_moe(choose: random.Random) -> dict[str, Any]:
    experts = choose.choice((4, 8, 13))
    return _draw_lfm2(choose) | {
        "model_type": "lfm2_moe",
        "num_dense_layers": choose.randrange(0, 3),
        "num_experts": experts,
        "num_experts_per_tok": choose.randrange(1, 4),
        "moe_intermediate_size": choose.choice((32, 64, 40)),
        "use_expert_bias": choose.random() < 0.7,
        "norm_topk_prob": choose.random() < 0.7,
        "routed_scaling_factor": choose.choice((1.0, 2.5)),
    }


def _draw_qwen3_5(choose: random.Random) -> dict[str, Any]:
    key_heads = choose.choice((1, 2, 3))
    layers = choose.randrange(1, 5)
    kinds = ("linear_attention", "linear_attention", "full_attention")
    return _draw_common(choose) | {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": layers,
        "layer_types": [choose.choice(kinds) for _ in range(layers)],
        "head_dim": choose.choice((16, 32, 64)),
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * choose.choice((1, 2, 3)),
        "linear_key_head_dim": choose.choice((8, 12, 32, 40)),
        "linear_value_head_dim": choose.choice((8, 20, 33, 48)),
        "linear_conv_kernel_dim": choose.choice((2, 3, 4)),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": choose.choice((0.25, 0.5, 1.0)),
            "mrope_section": [2, 1, 1],
        },
    }


def _draw_qwen3_5_moe(choose: random.Random) -> dict[str, Any]:
    experts = choose.choice((4, 8, 13))
    return _draw_qwen3_5(choose) | {
        "model_type": "qwen3_5_moe_text",
        "num_experts": experts,
        "num_experts_per_tok": choose.randrange(1, 4),
        "moe_intermediate_size": choose.choice((32, 64, 40)),
        "shared_expert_intermediate_size": choose.choice((32, 50)),
    }


def _draw_qwen3_next(choose: random.Random) -> dict[str, Any]:
    config = _draw_qwen3_5_moe(choose)
    dense = [layer for layer in range(config["num_hidden_layers"]) if choose.random() < 0.2]
    return config | {
        "model_type": "qwen3_next",
        "norm_topk_prob": choose.random() < 0.7,
        "mlp_only_layers": dense,
        "rope_parameters": None,
        "rope_theta": 10000.0,
        "partial_rotary_factor": choose.choice((0.25, 0.5, 1.0)),
    }


def _draw_gemma4(choose: random.Random) -> dict[str, Any]:
    common = _draw_common(choose)
    layers = choose.randrange(1, 6)
    kinds = ("sliding_attention", "full_attention")
    heads = common["num_attention_heads"]
    theta = choose.choice((300.0, 10000.0))
    return {name: value for name, value in common.items() if name != "hidden_act"} | {
        "model_type": "gemma4_text",
        "num_hidden_layers": layers,
        "layer_types": [*(choose.choice(kinds) for _ in range(layers - 1)), "full_attention"],
        "head_dim": choose.choice((8, 16, 32)),
        "global_head_dim": choose.choice((16, 32, 40)),
        "attention_k_eq_v": choose.random() < 0.5,
        "num_global_key_value_heads": choose.choice([n for n in (1, 2, 3) if heads % n == 0]),
        "attention_bias": choose.random() < 0.3,
        "hidden_size_per_layer_input": 0,
        "sliding_window": choose.choice((5, 20, 200)),
        "final_logit_softcapping": choose.choice((None, 2.0)),
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": theta},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": choose.choice((0.25, 0.5, 1.0)),
                "rope_theta": 20000.0,
            },
        },
    }


def _draw_gemma4_small(choose: random.Random) -> dict[str, Any]:
    config = _draw_gemma4(choose)
    layers = config["num_hidden_layers"]
    return config | {
        "attention_k_eq_v": False,
        "hidden_size_per_layer_input": choose.choice((8, 24, 32)),
        "vocab_size_per_layer_input": VOCAB_SIZE,
        "num_kv_shared_layers": choose.randrange(0, layers),
        "use_double_wide_mlp": choose.random() < 0.5,
    }


def _draw_gemma4_moe(choose: random.Random) -> dict[str, Any]:
    return _draw_gemma4(choose) | {
        "enable_moe_block": True,
        "num_experts": choose.choice((4, 8, 13)),
        "top_k_experts": choose.randrange(1, 4),
        "moe_intermediate_size": choose.choice((32, 64, 40)),
    }


def _draw_gemma3n(choose: random.Random) -> dict[str, Any]:
    common = _draw_common(choose)
    layers = choose.randrange(2, 6)
    kinds = ("sliding_attention", "full_attention")
    theta = choose.choice((300.0, 10000.0))
    streams = choose.choice((2, 3, 4))
    return {name: value for name, value in common.items() if name != "hidden_act"} | {
        "model_type": "gemma3n_text",
        "num_hidden_layers": layers,
        "layer_types": ["full_attention", *(choose.choice(kinds) for _ in range(layers - 1))],
        "head_dim": choose.choice((8, 16, 32)),
        "num_kv_shared_layers": choose.randrange(0, layers),
        "intermediate_size": [choose.choice((64, 96, 200)) for _ in range(layers)],
        "activation_sparsity_pattern": [choose.choice((0.95, 0.3, 0.0)) for _ in range(layers)],
        "attention_bias": False,
        "hidden_size_per_layer_input": choose.choice((8, 24, 32)),
        "vocab_size_per_layer_input": VOCAB_SIZE,
        "sliding_window": choose.choice((5, 20, 200)),
        "final_logit_softcapping": choose.choice((30.0, 2.0)),
        "altup_num_inputs": streams,
        "altup_active_idx": choose.randrange(streams),
        "altup_correct_scale": choose.random() < 0.7,
        "laurel_rank": choose.choice((8, 32)),
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": theta},
            "full_attention": {"rope_type": "default", "rope_theta": 20000.0},
        },
    }


def _draw(seed: int) -> dict[str, Any]:
    choose = random.Random(seed)
    draws = (
        *(_draw_lfm2, _draw_lfm2_moe, _draw_qwen3_5, _draw_qwen3_5_moe, _draw_qwen3_next),
        *(_draw_gemma4, _draw_gemma4_small, _draw_gemma4_moe, _draw_gemma3n),
    )
    return draws[seed % len(draws)](choose)


def _refused_field(config: dict[str, Any]) -> str | None:
    types = config["layer_types"]
    if "full_attention" not in types:
        return "layer_types"

    shared = config.get("num_kv_shared_layers", 0)
    if set(types[: len(types) - shared]) != set(types):
        return "num_kv_shared_layers"

    sizes = ("moe_intermediate_size", "hidden_size") if "num_experts" in config else ()
    return next((name for name in sizes if config[name] % TILE_ROWS), None)


def _write(directory: Path, config: dict[str, Any], weights: Weights) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    tiny_tokenizer().save(str(directory / "tokenizer.json"))
    write_safetensors(directory / "model.safetensors", weights)
    return directory


def _open(directory: Path) -> NativeModel:
    config = EngineConfig(quantization="q0f32", num_threads=2)
    return open_native_model(directory, config).native


def _logits(model: NativeModel, tokens: list[int], chunks: list[int]) -> NDArray[np.float32]:
    """Return the logits after each chunk."""
    model.add_sequence(0)
    rows, start = [], 0
    for size in chunks:
        rows.append(model.forward([(0, tokens[start : start + size])])[0])
        start += size
    model.remove_sequence(0)
    return np.stack(rows)


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("seed", range(108))
def test_a_random_config_is_equal_or_refused(tmp_path: Path, seed: int) -> None:
    import torch

    config = _draw(seed)
    weights = random_weights(config, seed)
    directory = _write(tmp_path / "model", config, weights)
    if (field := _refused_field(config)) is not None:
        with pytest.raises(ModelLoadError) as caught:
            _open(directory)
        assert caught.value.field == field
        return

    model = _open(directory)
    tokens = [int(i) for i in np.random.Generator(np.random.PCG64(seed)).integers(0, 256, LENGTH)]
    with torch.inference_mode():
        expected = live_model(config, weights)(torch.tensor([tokens])).logits[0].float().numpy()
    assert expected.shape == (LENGTH, VOCAB_SIZE)

    actual = _logits(model, tokens, [1] * LENGTH)
    limit = 1e-4 * (expected.max() - expected.min())
    # Nearly tied experts may be chosen otherwise, which changes single positions.
    wrong = np.abs(actual - expected).max(1) > limit
    assert wrong.sum() <= (2 if "num_experts" in config else 0)
    ends = [63, 64, 89]
    chunked = _logits(model, tokens, [64, 1, 25])
    np.testing.assert_array_equal(chunked, actual[ends])
