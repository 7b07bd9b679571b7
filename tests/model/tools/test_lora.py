"""Adapters are merged as in float64, and whatever would be merged wrongly is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.tools.convert import convert_weights
from tests.model.tiny_models import tiny_weights
from tests.model.tools.models import read_tensors, write_tiny
from tests.model.weight_files import from_bf16, to_bf16, write_safetensors

pytestmark = pytest.mark.anyio

Array = NDArray[Any]

_PREFIX = "base_model.model."
_Q = "model.layers.0.self_attn.q_proj"
_V = "model.layers.1.self_attn.v_proj"
_DOWN = "model.layers.2.mlp.down_proj"
_EMBEDDING = "model.embed_tokens"
_RANK = 4
_CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": _RANK,
    "lora_alpha": 6,
    "target_modules": ["q_proj", "v_proj", "down_proj"],
    "fan_in_fan_out": False,
    "init_lora_weights": True,
    "use_dora": False,
    "use_rslora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "bias": "none",
}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "llama", "llama")


def random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).normal(0, 0.3, shape).astype(np.float32)


def low_rank(module: str, rank: int = _RANK) -> dict[str, Array]:
    """Return the two matrices of a module of the tiny model."""
    outputs, inputs = tiny_weights("llama")[f"{module}.weight"].shape
    return {
        f"{_PREFIX}{module}.lora_A.weight": random(rank, inputs),
        f"{_PREFIX}{module}.lora_B.weight": random(outputs, rank),
    }


def write_adapter(directory: Path, tensors: dict[str, Array], **config: object) -> Path:
    """Write an adapter in PEFT's format; float16 and bfloat16 (uint16) tensors stay as they are."""
    directory.mkdir(exist_ok=True)
    (directory / "adapter_config.json").write_text(json.dumps({**_CONFIG, **config}))
    dtypes = {"float32": "f32", "float16": "f16", "uint16": "bf16"}
    write_safetensors(
        directory / "adapter_model.safetensors",
        {name: (dtypes[tensor.dtype.name], tensor) for name, tensor in tensors.items()},
    )
    return directory


async def merged(model: Path, adapter: Path) -> dict[str, NDArray[np.float32]]:
    """Return the merged weights, rounded to bfloat16; queries, keys and values are one matrix."""
    output = adapter.with_name("out")
    await convert_weights(model, output, quantization="q0bf16", lora_adapter=adapter, force=True)
    return {name: from_bf16(tensor) for name, tensor in read_tensors(output).items()}


def product(tensors: dict[str, Array], module: str) -> NDArray[np.float64]:
    a, b = (tensors[f"{_PREFIX}{module}.lora_{part}.weight"] for part in "AB")
    result: NDArray[np.float64] = b.astype(np.float64) @ a.astype(np.float64)
    return result


def assert_bf16(actual: Array, expected: Array) -> None:
    """Compare with a float64 result rounded to bfloat16, of which the last bit may differ."""
    np.testing.assert_allclose(actual, expected, rtol=2**-8, atol=1e-6)
    exact = from_bf16(to_bf16(expected.astype(np.float32)))
    assert np.mean(actual == exact) > 0.99


@pytest.mark.parametrize("is_rank_stabilized", [False, True])
async def test_the_product_is_scaled_and_added(
    llama: Path, tmp_path: Path, is_rank_stabilized: bool
) -> None:
    tensors = {**low_rank(_Q), **low_rank(_V), **low_rank(_DOWN)}
    adapter = write_adapter(tmp_path / "lora", tensors, use_rslora=is_rank_stabilized)

    actual = await merged(llama, adapter)

    weights = tiny_weights("llama")
    scale = 6 / np.sqrt(_RANK) if is_rank_stabilized else 6 / _RANK
    expected = weights[f"{_Q}.weight"] + scale * product(tensors, _Q)
    rows = len(expected)
    assert_bf16(actual["model.layers.0.self_attn.qkv_proj.weight"][:rows], expected)
    assert_bf16(
        actual[f"{_DOWN}.weight"], weights[f"{_DOWN}.weight"] + scale * product(tensors, _DOWN)
    )
    expected_v = weights[f"{_V}.weight"] + scale * product(tensors, _V)
    fused = actual["model.layers.1.self_attn.qkv_proj.weight"]
    assert_bf16(fused[-len(expected_v) :], expected_v)
    np.testing.assert_array_equal(  # Not adapted.
        fused[:rows], from_bf16(to_bf16(weights["model.layers.1.self_attn.q_proj.weight"]))
    )


async def test_dora_scales_rows_to_its_magnitudes(llama: Path, tmp_path: Path) -> None:
    tensors = low_rank(_DOWN)
    weight = tiny_weights("llama")[f"{_DOWN}.weight"]
    magnitude = np.abs(random(len(weight))) + 1
    tensors[f"{_PREFIX}{_DOWN}.lora_magnitude_vector"] = magnitude
    adapter = write_adapter(tmp_path / "lora", tensors, use_dora=True)

    actual = await merged(llama, adapter)

    updated = weight + 6 / _RANK * product(tensors, _DOWN)
    norms = np.linalg.norm(updated, axis=1, keepdims=True)
    assert_bf16(actual[f"{_DOWN}.weight"], magnitude[:, None] * updated / norms)
    lengths = np.linalg.norm(actual[f"{_DOWN}.weight"].astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, magnitude, rtol=2**-8)


async def test_patterns_change_the_rank_and_alpha_of_modules(llama: Path, tmp_path: Path) -> None:
    tensors = {**low_rank(_Q, rank=2), **low_rank(_DOWN)}
    adapter = write_adapter(
        tmp_path / "lora",
        tensors,
        rank_pattern={"layers.0.self_attn.q_proj": 2},
        alpha_pattern={"^model\\.layers\\.2\\.mlp\\.down_proj": 10, "q_proj": 3},
    )

    actual = await merged(llama, adapter)

    weights = tiny_weights("llama")
    expected = weights[f"{_Q}.weight"] + 3 / 2 * product(tensors, _Q)
    assert_bf16(actual["model.layers.0.self_attn.qkv_proj.weight"][: len(expected)], expected)
    expected = weights[f"{_DOWN}.weight"] + 10 / _RANK * product(tensors, _DOWN)
    assert_bf16(actual[f"{_DOWN}.weight"], expected)


@pytest.mark.parametrize("is_saved", [False, True])
async def test_an_embedding_has_a_transposed_product(
    llama: Path, tmp_path: Path, is_saved: bool
) -> None:
    weight = tiny_weights("llama")[f"{_EMBEDDING}.weight"] * (2 if is_saved else 1)
    a, b = random(_RANK, weight.shape[0]), random(weight.shape[1], _RANK)
    tensors = {
        f"{_PREFIX}{_EMBEDDING}.lora_embedding_A": a,
        f"{_PREFIX}{_EMBEDDING}.lora_embedding_B": b,
    }
    if is_saved:
        tensors[f"{_PREFIX}{_EMBEDDING}.base_layer.weight"] = weight
    adapter = write_adapter(tmp_path / "lora", tensors)

    actual = await merged(llama, adapter)

    expected = weight + 6 / _RANK * (b.astype(np.float64) @ a).T
    assert_bf16(actual[f"{_EMBEDDING}.weight"], expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
async def test_saved_modules_replace_those_of_the_model(
    llama: Path, tmp_path: Path, dtype: str
) -> None:
    head = random(*tiny_weights("llama")["lm_head.weight"].shape)
    stored = head.astype(np.float16) if dtype == "float16" else to_bf16(head)
    adapter = write_adapter(tmp_path / "lora", {**low_rank(_Q), f"{_PREFIX}lm_head.weight": stored})

    actual = await merged(llama, adapter)

    widened = stored.astype(np.float32) if dtype == "float16" else from_bf16(stored)
    np.testing.assert_array_equal(actual["lm_head.weight"], from_bf16(to_bf16(widened)))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "LOHA"}, '"peft_type" must be "LORA", got \'LOHA\''),
        ({"use_qalora": True}, '"use_qalora" is not supported'),
        ({"lora_bias": True}, '"lora_bias" is not supported'),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the model's own weights"),
        ({"r": 0}, '"r" must be a positive integer, got 0'),
        ({"lora_alpha": None}, '"lora_alpha" must be a positive number, got None'),
        ({"alpha_pattern": {"(a|b)*": 1}}, "regular expressions are not supported"),
        ({"rank_pattern": {"q_proj": 3}}, "wrong shape: expected"),
        ({"use_dora": True}, "must consist of a, b, magnitude, got a, b"),
    ],
)
async def test_unsupported_settings_are_refused_by_name(
    llama: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    adapter = write_adapter(tmp_path / "lora", low_rank(_Q), **config)

    with pytest.raises(ModelLoadError, match=message.replace("(", "\\(")):
        await merged(llama, adapter)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{_PREFIX}model.layers.0.self_attn.out_proj.lora_A.weight", "has no tensor .*out_proj"),
        (f"{_PREFIX}score.weight", r"has no tensor score\.weight to adapt"),
        (f"{_PREFIX}{_Q}.lora_C.weight", "this part of an adapter is not supported"),
        (f"{_Q}.lora_A.weight", "the name must begin with base_model"),
        (f"{_PREFIX}model.norm.lora_A.weight", "of a tensor of shape"),
    ],
)
async def test_unknown_tensors_are_refused_by_name(
    llama: Path, tmp_path: Path, name: str, message: str
) -> None:
    adapter = write_adapter(tmp_path / "lora", {**low_rank(_V), name: random(4, 64)})

    with pytest.raises(ModelLoadError, match=message):
        await merged(llama, adapter)


async def test_a_tensor_that_the_model_ignores_is_refused(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "qwen2")  # The output head is the embedding.
    weights = tiny_weights("qwen2")
    head = weights[f"{_EMBEDDING}.weight"]
    write_safetensors(
        model / "model.safetensors",
        {name: ("f32", value) for name, value in {**weights, "lm_head.weight": head}.items()},
    )
    adapter = write_adapter(tmp_path / "lora", {f"{_PREFIX}lm_head.weight": head})

    with pytest.raises(ModelLoadError, match="but the model does not use it") as caught:
        await merged(model, adapter)

    assert caught.value.tensor == "lm_head.weight"


async def test_a_missing_adapter_is_an_error(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"adapter_config\.json"):
        await merged(llama, tmp_path / "none")
