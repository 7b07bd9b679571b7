"""Files of llama.cpp's own converter have the logits of transformers on the same weights.

`AIOMLC_LLAMA_CPP` is the directory with its `convert_hf_to_gguf.py`: `make converter` downloads it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import MLCEngine
from aiomlc.config import EngineConfig
from benchmarks.native_model import open_native_model
from tests.model.families.test_logits import check_float32
from tests.model.llama_cpp_converter import Converter, running_converter
from tests.model.make_reference import PROMPT, live_model
from tests.model.mxfp4 import dequantize_mxfp4, quantize_mxfp4
from tests.model.quantized_models import write_tensors
from tests.model.tiny_models import (
    TINY_CONFIGS,
    Weights,
    random_weights,
    tiny_tokenizer,
    write_safetensors,
)

_SOURCE = os.environ.get("AIOMLC_LLAMA_CPP", "")

pytestmark = [
    pytest.mark.skipif(not _SOURCE, reason="needs AIOMLC_LLAMA_CPP (make converter)"),
    pytest.mark.usefixtures("model_cache"),
]

# Models that the converter does not know, or of which a file does not have the windows.
_OTHERS = ("helium", "mistral_window", "qwen2_window")
# Fields with values that the converter can write, or needs.
_CHANGES: Mapping[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 32},
    "gemma3_text": {
        "query_pre_attn_scalar": 32,
        "sliding_window_pattern": 6,
        "num_hidden_layers": 7,
    },
    "glm": {"head_dim": 16},
    "gpt_neox": {"rotary_emb_base": 10000},
    "gpt_neox_serial": {"rotary_emb_base": 10000},
    "granitemoehybrid": {
        "layer_types": ["attention"] * 2,
        "intermediate_size": 160,
        "mamba_n_groups": 1,
        "mamba_expand": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
    },
    "lfm2": {"conv_bias": False},
    "lfm2_moe": {"tie_word_embeddings": True},
    "mixtral": {"sliding_window": None},
    "phi": {"intermediate_size": 256},
    "qwen2_moe": {"decoder_sparse_step": 1},
    "qwen3_moe": {"mlp_only_layers": []},
    "qwen3_next": {"layer_types": ["full_attention", "linear_attention", "linear_attention"]},
    "smollm3": {"no_rope_layer_interval": 4},
    "starcoder2": {"sliding_window": None},
}
_OPTIONS: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"), ("--no-mtp",)
)


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with running_converter(Path(_SOURCE)) as running:
        yield running


def _write(directory: Path, config: Mapping[str, Any], weights: Weights) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    tiny_tokenizer().save(str(directory / "tokenizer.json"))
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    write_safetensors(directory / "model.safetensors", weights)
    return directory


def _logits(path: Path) -> NDArray[np.float32]:
    """Return the logits after each token of the prompt."""
    config = EngineConfig(num_threads=2)
    model = open_native_model(path, config).native
    model.add_sequence(0)
    return np.concatenate([model.forward([(0, [token])]) for token in PROMPT])


def _expected(config: Mapping[str, Any], weights: Weights) -> NDArray[np.float32]:
    import torch

    with torch.inference_mode():
        logits = live_model(config, weights)(torch.tensor([PROMPT])).logits[0]
    rows: NDArray[np.float32] = logits.float().numpy()
    return rows


@pytest.mark.parametrize("name", [name for name in TINY_CONFIGS if name not in _OTHERS])
def test_a_converted_file_has_the_logits_of_transformers(
    converter: Converter, tmp_path: Path, name: str
) -> None:
    config = TINY_CONFIGS[name] | _CHANGES.get(name, {})
    weights = random_weights(config, seed=sum(name.encode()))
    directory, path = _write(tmp_path / "model", config, weights), tmp_path / "model.gguf"

    failure = converter.convert(directory, path, "--outtype", "f32", *_OPTIONS.get(name, ()))

    assert not failure
    check_float32(_logits(path), _expected(config, weights))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llama_bias", ("--fuse-qkv",)),
        ("qwen2", ("--fuse-qkv",)),
        ("gemma3n_text", ("--fuse-qkv",)),
        ("gemma4_small", ("--fuse-qkv",)),
        ("gemma4_text", ("--fuse-qkv",)),
        ("qwen3_next", ("--fuse-gate-up-exps", "--no-mtp")),
    ],
)
def test_options_that_fuse_tensors_change_no_logits(
    converter: Converter, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    config = TINY_CONFIGS[name]
    weights = random_weights(config, seed=3)
    directory, path = _write(tmp_path / "model", config, weights), tmp_path / "model.gguf"

    failure = converter.convert(directory, path, "--outtype", "f32", *options)

    assert not failure
    check_float32(_logits(path), _expected(config, weights))


def _check_close(actual: NDArray[np.float32], expected: NDArray[np.float32], limit: float) -> None:
    assert np.abs(actual - expected).max() <= limit * (expected.max() - expected.min())


@pytest.mark.parametrize(("outtype", "limit"), [("f16", 3e-3), ("bf16", 2e-2), ("q8_0", 2e-2)])
def test_types_of_fewer_bits_stay_close(
    converter: Converter, tmp_path: Path, outtype: str, limit: float
) -> None:
    config = TINY_CONFIGS["llama"]
    weights = random_weights(config, seed=4)
    directory, path = _write(tmp_path / "model", config, weights), tmp_path / "model.gguf"

    assert not converter.convert(directory, path, "--outtype", outtype)

    _check_close(_logits(path), _expected(config, weights), limit)


@pytest.mark.parametrize("name", ["qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"])
def test_heads_for_drafts_in_a_file_are_not_read(
    converter: Converter, tmp_path: Path, name: str
) -> None:
    config = TINY_CONFIGS[name]
    weights = random_weights(config, seed=5)
    attention = next(key for key in weights if key.endswith("q_proj.weight")).split(".")[2]
    prefix, hidden = f"model.layers.{attention}.", config["hidden_size"]
    heads = {
        key.replace(prefix, "mtp.layers.0."): value
        for key, value in weights.items()
        if key.startswith(prefix)
    }
    heads["mtp.fc.weight"] = np.ones((hidden, 2 * hidden), np.float32)
    norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    heads |= {f"mtp.{norm}.weight": np.ones(hidden, np.float32) for norm in norms}
    fields = config | {"mtp_num_hidden_layers": 1}
    directory, path = _write(tmp_path / "model", fields, weights | heads), tmp_path / "model.gguf"

    assert not converter.convert(directory, path, "--outtype", "f32")

    assert b"nextn" in path.read_bytes()
    check_float32(_logits(path), _expected(config, weights))


@pytest.mark.parametrize(
    ("name", "text", "architecture", "prefix"),
    [
        ("gemma3", "gemma3_text", "Gemma3ForConditionalGeneration", "language_model.model."),
        ("qwen3_5", "qwen3_5_text", "Qwen3_5ForConditionalGeneration", "model.language_model."),
        (
            "qwen3_5_moe",
            "qwen3_5_moe_text",
            "Qwen3_5MoeForConditionalGeneration",
            "model.language_model.",
        ),
    ],
)
def test_the_text_decoder_of_a_multimodal_model_is_converted(
    converter: Converter, tmp_path: Path, name: str, text: str, architecture: str, prefix: str
) -> None:
    config = TINY_CONFIGS[text] | _CHANGES.get(text, {})
    weights = random_weights(config, seed=6)
    fields = {
        "model_type": name,
        "architectures": [architecture],
        "tie_word_embeddings": config["tie_word_embeddings"],
        "text_config": config,
        "vision_config": {},
    }
    renamed = {key.replace("model.", prefix, 1): value for key, value in weights.items()}
    directory, path = _write(tmp_path / "model", fields, renamed), tmp_path / "model.gguf"

    failure = converter.convert(directory, path, "--outtype", "f32", *_OPTIONS.get(text, ()))

    assert not failure
    check_float32(_logits(path), _expected(config, weights))


def test_mxfp4_of_gpt_oss_keeps_its_numbers(converter: Converter, tmp_path: Path) -> None:
    config = TINY_CONFIGS["gpt_oss"]
    weights = random_weights(config, seed=7)
    stored: dict[str, NDArray[Any]] = {}
    for key, value in weights.items():
        if key.endswith((".gate_up_proj", ".down_proj")):
            quantized = quantize_mxfp4(value.swapaxes(1, 2))  # Rows of inputs.
            stored |= {f"{key}_blocks": quantized.blocks, f"{key}_scales": quantized.scales}
            weights[key] = dequantize_mxfp4(quantized).swapaxes(1, 2).copy()
        else:
            stored[key] = value
    directory, path = _write(tmp_path / "model", config, {}), tmp_path / "model.gguf"
    quantization = {"quant_method": "mxfp4"}
    fields = config | {"quantization_config": quantization}
    (directory / "config.json").write_text(json.dumps(fields))
    write_tensors(directory / "model.safetensors", stored)

    assert not converter.convert(directory, path, "--outtype", "f32")

    # Activations of the experts are rounded to 8 bits.
    _check_close(_logits(path), _expected(config, weights), 2e-2)


def test_an_engine_answers_from_a_converted_file(converter: Converter, tmp_path: Path) -> None:
    config, name = TINY_CONFIGS["qwen3_next"], "qwen3_next"
    weights = random_weights(config, seed=8)
    directory, path = _write(tmp_path / "model", config, weights), tmp_path / "model.gguf"

    assert not converter.convert(directory, path, "--outtype", "f32", *_OPTIONS[name])

    answers = []
    for model in (directory, path):
        with MLCEngine(str(model), engine_config=EngineConfig(quantization="q0f32")) as engine:
            answer = engine.completions.create(prompt="The sea", max_tokens=8, temperature=0)
            answers.append(answer.choices[0].text)
    assert answers[0] == answers[1]
