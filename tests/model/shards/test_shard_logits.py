"""The logits of a model in several processes are those of one process, up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc import BadRequestError, convert_weights, gen_config
from aiomlc.runtime.native.model import NativeModel
from tests.model.quantized_files import QUANTIZERS
from tests.model.quantized_models import write_quantized

OpenShards = Callable[..., NativeModel]
Directory = Callable[..., Path]
TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(80)]
#: The largest difference, as a fraction of the largest logit: see docs/design/shards.md.
BOUNDS = {"q0f32": 1e-5, "q4f16_1": 5e-2, "w8a8": 5e-2, "w4a8": 1e-1}


def _logits(model: NativeModel) -> NDArray[np.float32]:
    """Return logits of chunks, of a fork, of a batch and of single tokens."""
    model.add_sequence(0)
    rows = [model.forward([(0, TOKENS[:50])]), model.forward([(0, TOKENS[50:60])])]
    model.fork_sequence(0, 1, 37)
    model.add_sequence(2)
    rows.append(model.forward([(0, TOKENS[60:61]), (1, TOKENS[1:20]), (2, TOKENS[:3])]))
    rows += [model.forward([(n, [TOKENS[i + n]]) for n in (0, 1, 2)]) for i in range(5)]
    for sequence in (0, 1, 2):
        model.remove_sequence(sequence)
    return np.concatenate(rows)


@pytest.mark.parametrize(
    ("architecture", "quantization"),
    [
        *product(("llama", "qwen3", "qwen3_moe", "gpt_oss", "cohere"), ("q0f32", "q4f16_1")),
    ],
)
def test_two_shards_have_the_logits_of_one(
    open_shards: OpenShards, architecture: str, quantization: str
) -> None:
    one = open_shards(architecture, 1, quantization=quantization)
    two = open_shards(architecture, 2, quantization=quantization)

    expected, actual = _logits(one), _logits(two)

    largest = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=BOUNDS[quantization] * largest)
    np.testing.assert_array_equal(actual.argmax(1), expected.argmax(1))
    assert two.shape.num_kv_heads * 2 == one.shape.num_kv_heads


def test_the_bits_do_not_depend_on_the_batch(open_shards: OpenShards) -> None:
    model = open_shards("llama", 2, quantization="q4f16_1")
    model.add_sequence(0)
    alone = model.forward([(0, TOKENS)])[0]
    model.remove_sequence(0)

    for sequence in (0, 1):
        model.add_sequence(sequence)
    model.forward([(0, TOKENS[:33]), (1, TOKENS[5:30])])
    batched = model.forward([(1, TOKENS[:4]), (0, TOKENS[33:])])[1]

    np.testing.assert_array_equal(batched, alone)


def test_biases_a_tied_head_and_an_int8_cache_are_divided(open_shards: OpenShards) -> None:
    models = (
        open_shards("qwen2", count, quantization="q0f32", kv_cache_dtype="int8") for count in (1, 2)
    )

    expected, actual = map(_logits, models)

    largest = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-2 * largest)
    assert np.median(np.abs(actual - expected)) <= 1e-5 * largest  # All but rounded keys.


@pytest.mark.parametrize(
    "name", ["awq_g32", "gptq_4_g64", "gptq_2_g32", "w4a16_asymmetric", "fp8_block"]
)
def test_quantized_weights_are_divided_at_their_groups(
    open_shards: OpenShards, tmp_path: Path, name: str
) -> None:
    write_quantized(tmp_path / "model", QUANTIZERS[name])

    expected, actual = (_logits(open_shards(tmp_path / "model", count)) for count in (1, 2))

    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-2 * np.abs(expected).max())
    rows = np.abs(actual - expected).max(axis=1)
    assert np.median(rows) <= 1e-5 * np.abs(expected).max()  # All but rounded activations.


@pytest.mark.parametrize("quantization", ["w4a8", "w8a8"])
def test_rotated_floats_are_divided_and_each_shard_has_its_own_scales(
    open_shards: OpenShards, divisible: Directory, quantization: str
) -> None:
    directory = divisible("llama", head_dim=64)  # Whole groups of 64 inputs in each shard.
    one, two = (open_shards(directory, count, quantization=quantization) for count in (1, 2))

    expected, actual = _logits(one), _logits(two)

    largest = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=BOUNDS[quantization] * largest)


@pytest.mark.parametrize("kv_cache_dtype", ["int8", "int4"])
def test_shards_have_quantized_caches_of_their_heads(
    open_shards: OpenShards, divisible: Directory, kv_cache_dtype: str
) -> None:
    directory = divisible("llama", head_dim=64)
    config = {"quantization": "q0f32", "kv_cache_dtype": kv_cache_dtype}
    one, two = (open_shards(directory, count, **config) for count in (1, 2))

    expected, actual = _logits(one), _logits(two)

    # A sum in another order can change how an element is rounded.
    rows = np.abs(actual - expected).max(axis=1) / np.abs(expected).max()
    assert np.median(rows) <= 1e-4
    assert rows.max() <= 5e-2


def test_converted_w4a8_is_cut_at_its_rotations(
    open_shards: OpenShards, divisible: Directory, tmp_path: Path
) -> None:
    source, model = divisible("llama", head_dim=64), tmp_path / "converted"
    anyio.run(partial(convert_weights, source, model, quantization="w4a8"))
    anyio.run(partial(gen_config, source, model, quantization="w4a8", conv_template="LM"))
    one, two = (open_shards(model, count) for count in (1, 2))

    expected, actual = _logits(one), _logits(two)

    # Shards have the weights of the whole rows, and round activations with scales of their own.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-2 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["w8a8", "w8a8_tensor"])
def test_int8_per_channel_is_divided_and_each_shard_rounds_its_activations(
    open_shards: OpenShards, tmp_path: Path, name: str
) -> None:
    write_quantized(tmp_path / "model", QUANTIZERS[name])

    expected, actual = (_logits(open_shards(tmp_path / "model", count)) for count in (1, 2))

    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-2 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("architecture", "count", "problem"),
    [
        ("llama", 3, "layer 0 has num_attention_heads = 4, which must be a multiple of 3"),
        ("llama", 4, "layer 0 has num_key_value_heads = 2, which must be a multiple of 4"),
        ("olmo2", 2, "layer 0 has a norm over the queries of all heads"),
        ("lfm2", 2, "layer 0 is recurrent, and its state is not divided"),
        ("gemma4_moe", 2, "layer 0 has norms between its experts and their sum"),
    ],
)
def test_a_model_that_cannot_be_divided_is_refused(
    open_shards: OpenShards, architecture: str, count: int, problem: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        open_shards(architecture, count, quantization="q0f32")

    assert str(caught.value) == (
        f"engine_config.tensor_parallel_shards = {count} is not possible for this model: "
        f"{problem}; use 1"
    )
    assert caught.value.param == "tensor_parallel_shards"


def test_groups_of_weights_must_not_be_cut(
    open_shards: OpenShards, tiny_directory: Directory
) -> None:
    problem = r"layers.0.mlp.down_proj has 160 columns in groups of 32 \(q4\), which must be a "

    with pytest.raises(BadRequestError, match=problem + "multiple of 64; use 1"):
        open_shards(tiny_directory("llama"), 2, quantization="q4f16_1")
