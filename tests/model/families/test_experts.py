"""Mixture-of-experts models: every weight format, and the kernel as compiled libraries call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import tvm_ffi
from numpy.typing import NDArray

from aiomlc.config import EngineConfig
from aiomlc.models import DecoderConfig, decoder_parameters, read_description
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import prepare_model
from aiomlc.runtime.native.library import load_native
from tests.model.kernels.kernel_calls import empty, random
from tests.model.kernels.test_linear import layout, pack_f32, pack_q4
from tests.model.tiny_experts import EXPERT_CONFIGS, fused_experts
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model, write_safetensors
from tests.model.weight_files import mlc_record, mlc_words, quantize, write_mlc

load_native()

Array = NDArray[Any]
HIDDEN, INNER, EXPERTS = 48, 32, 5


@pytest.mark.parametrize("architecture", EXPERT_CONFIGS)
@pytest.mark.parametrize("quantization", ["q4f16_1", "q0f32"])
@pytest.mark.sampled(6)
def test_fused_expert_tensors_give_the_same_packed_bytes(
    model_cache: Path, tmp_path: Path, architecture: str, quantization: str
) -> None:
    config = EngineConfig(quantization=quantization, num_threads=2)
    fused = fused_experts(tiny_weights(architecture))
    assert any(value.ndim == 3 for value in fused.values())

    packed = []
    for name in ("parts", "fused"):
        directory = write_model(tmp_path / name, architecture)
        if name == "fused":
            write_safetensors(directory / "model.safetensors", fused)
        prepared = anyio.run(
            prepare_model,
            ModelFacts(find_model(directory), config.quantization),
            "cpu",
            config,
            lambda progress: None,
        )
        packed.append(prepared.weights.path.read_bytes())

    assert packed[0] == packed[1]


def write_mlc_model(directory: Path, architecture: str) -> None:
    """Write the weights in MLC's format: three-axis 4-bit experts, unquantized routers."""
    settings = TINY_CONFIGS[architecture]
    outer = {
        "model_type": settings["model_type"],
        "quantization": "q4f16_1",
        "context_window_size": settings["max_position_embeddings"],
        "model_config": settings,
    }
    config_path = directory / "mlc-chat-config.json"
    config_path.write_text(json.dumps(outer))
    config = read_description(directory).config
    assert isinstance(config, DecoderConfig)
    weights = tiny_weights(architecture)
    tensors: list[tuple[dict[str, Any], Array]] = []
    for parameter in decoder_parameters(config):
        value = np.concatenate([weights[source] for source in parameter.sources])
        if parameter.kind == "vector":
            tensors.append((mlc_record(parameter.mlc_name, value), value))
        elif parameter.keep_float32:
            tensors.append((mlc_record(f"{parameter.mlc_name}.weight", value), value))
        else:
            axes = (parameter.num_experts, -1) if parameter.num_experts else (-1,)
            values, scales = quantize(value)
            parts: dict[str, Array] = {"q_weight": mlc_words(values), "q_scale": scales}
            for name, part in parts.items():
                stored = part.reshape(*axes, part.shape[1])
                tensors.append((mlc_record(f"{parameter.mlc_name}.{name}", stored), stored))
    write_mlc(directory, tensors)


@pytest.mark.parametrize("architecture", EXPERT_CONFIGS)
def test_an_mlc_directory_gives_the_same_packed_bytes(
    model_cache: Path, tmp_path: Path, architecture: str
) -> None:
    packed = []
    for name in ("hf", "mlc"):
        directory = write_model(tmp_path / name, architecture)
        if name == "mlc":
            (directory / "config.json").unlink()
            (directory / "model.safetensors").unlink()
            write_mlc_model(directory, architecture)
        config = EngineConfig(quantization="q4f16_1", num_threads=2)
        prepared = anyio.run(
            prepare_model,
            ModelFacts(find_model(directory), config.quantization),
            "cpu",
            config,
            lambda progress: None,
        )
        packed.append(prepared.weights.path.read_bytes())

    assert packed[0] == packed[1]


def call(*arguments: object) -> None:
    function = tvm_ffi.get_global_func("aiomlc.cpu.mix_experts")
    assert function is not None
    function(*(tvm_ffi.from_dlpack(a) if isinstance(a, np.ndarray) else a for a in arguments))


def matrices() -> tuple[Array, Array]:
    return random(EXPERTS * 2 * INNER, HIDDEN, seed=1), random(EXPERTS * HIDDEN, INNER, seed=2)


@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize("normalize", [0, 1])
def test_the_kernel_computes_the_weighted_sum_of_the_chosen_experts(
    rows: int, normalize: int
) -> None:
    gate_up, down = matrices()
    x, logits, out = (
        random(rows, HIDDEN, seed=3),
        random(rows, EXPERTS, seed=4),
        empty(rows, HIDDEN),
    )

    gate_up_layout, down_layout = layout(("f32", 2 * INNER)), layout(("f32", HIDDEN))
    packed, packed_down = pack_f32(gate_up)[0], pack_f32(down)[0]
    call(x, logits, packed, gate_up_layout, packed_down, down_layout, 2, normalize, out)

    for row in range(rows):
        probabilities = np.exp(logits[row] - logits[row].max())
        probabilities /= probabilities.sum()
        chosen = np.argsort(-probabilities)[:2]
        total = probabilities[chosen].sum() if normalize else 1.0
        expected = np.zeros(HIDDEN)
        for expert in chosen:
            both = gate_up.reshape(EXPERTS, 2 * INNER, HIDDEN)[expert] @ x[row]
            gate, up = both[:INNER], both[INNER:]
            gated = gate / (1 + np.exp(-gate)) * up
            result = down.reshape(EXPERTS, HIDDEN, INNER)[expert] @ gated
            expected += probabilities[expert] / total * result
        np.testing.assert_allclose(out[row], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": empty(3, EXPERTS)}, "logits has shape"),
        ({"logits": empty(2, EXPERTS + 1)}, "gate_up has shape"),
        ({"gate_up_layout": layout(("q4", 32))}, "gate_up has shape"),
        ({"gate_up_layout": layout(("q4", 48))}, "must have a multiple of 32 rows, got 48"),
        ({"gate_up_layout": layout(("q4", 24), ("q4", 8))}, "a segment of 24 rows"),
        ({"gate_up_layout": layout(("q4", 32), ("f32", 32))}, "the same kind of activations"),
        ({"down_layout": layout(("q4", 16))}, "down must have"),
        ({"down": np.zeros(16, np.uint8)}, "down has shape"),
        ({"x": empty(2, 40)}, "the last axis of x must be a positive multiple of 16, got 40"),
        ({"per_row": 0}, "per_row must be between 1 and 5, got 0"),
        ({"per_row": 6}, "per_row must be between 1 and 5, got 6"),
        ({"out": empty(2, 40)}, "out has shape"),
    ],
)
def test_mismatched_arguments_are_rejected(changes: dict[str, object], message: str) -> None:
    gate_up, down = matrices()
    arguments: dict[str, object] = {
        "x": empty(2, HIDDEN),
        "logits": empty(2, EXPERTS),
        "gate_up": pack_q4(gate_up)[0],
        "gate_up_layout": layout(("q4", 2 * INNER)),
        "down": pack_q4(down)[0],
        "down_layout": layout(("q4", HIDDEN)),
        "per_row": 2,
        "normalize": 1,
        "out": empty(2, HIDDEN),
    }
    arguments |= changes
    if "x" in changes:
        arguments["out"] = changes["x"]

    with pytest.raises(ValueError, match=message):
        call(*arguments.values())
