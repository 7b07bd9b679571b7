"""The keys of a GGUF file are the config of its model, and errors name them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.architectures import ARCHITECTURES
from aiomlc.gguf.pre_tokenizers import PRE_TOKENIZERS
from aiomlc.models import DecoderConfig, read_description
from tests.unit.models.plans import rope_of

_Change = Callable[[gguf.GGUFWriter], object]


def _write(path: Path, change: _Change, *, architecture: str = "llama", rows: int = 50) -> Path:
    """Write a file with the keys of a small model, after those that `change` adds."""
    writer = gguf.GGUFWriter(path, architecture)
    change(writer)
    defaults = {
        "block_count": 2,
        "context_length": 128,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
    }
    for suffix, value in defaults.items():
        key = f"{architecture}.{suffix}"
        if key not in writer.kv_data[0]:
            writer.add_uint32(key, value)
    if f"{architecture}.attention.layer_norm_rms_epsilon" not in writer.kv_data[0]:
        writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((rows, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _ignore(writer: gguf.GGUFWriter) -> None:
    pass


def _factors(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("rope_freqs.weight", np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda w: w.add_block_count(0), 'field "llama.block_count" must be >= 1, got 0'),
        (lambda w: w.add_block_count(10**9), 'field "llama.block_count" must be <= 2048'),
        (lambda w: w.add_string("llama.block_count", "2"), "llama.block_count must be an integer"),
        (lambda w: w.add_head_count(0), "llama.attention.head_count must be >= 1, got 0"),
        (
            lambda w: w.add_head_count_kv([2, 1]),
            "llama.attention.head_count_kv must be the same in all layers, got \\[1, 2\\]",
        ),
        (
            lambda w: w.add_head_count_kv(3),
            r'field "llama.attention.head_count_kv" must divide num_attention_heads \(4\), got 3',
        ),
        (
            lambda w: w.add_value_length(8),
            r"llama.attention.value_length must equal attention.key_length \(16\), got 8",
        ),
        (
            lambda w: w.add_rope_dimension_count(32),
            r"llama.rope.dimension_count must be between 2 and the head size \(16\), got 32",
        ),
        (
            lambda w: w.add_layer_norm_rms_eps(float("nan")),
            "llama.attention.layer_norm_rms_epsilon must be a finite number, got nan",
        ),
        (
            lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR),
            "llama.rope.scaling.factor is missing",
        ),
        (
            lambda w: w.add_string("llama.rope.scaling.type", "x"),
            "llama.rope.scaling.type must be one of none, linear, yarn, longrope, got 'x'",
        ),
        (_factors, 'field "rope_freqs.weight" must have 8 numbers, one per rotated pair, got 3'),
    ],
)
def test_an_invalid_value_is_refused_by_its_key(
    tmp_path: Path, change: _Change, problem: str
) -> None:
    path = _write(tmp_path / "a.gguf", change)

    with pytest.raises(ModelLoadError, match=f"{path}: {problem}"):
        read_description(path)


def test_an_invalid_value_of_a_tensor_is_refused_by_its_name(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.gguf", _factors)

    with pytest.raises(ModelLoadError) as caught:
        read_description(path)

    assert (caught.value.path, caught.value.tensor) == (path, "rope_freqs.weight")


def test_an_unknown_architecture_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.gguf", _ignore, architecture="mamba")

    with pytest.raises(
        ModelLoadError, match=r"general.architecture must be one of bert, .*, got 'mamba'"
    ):
        read_description(path)


def test_an_adapter_is_not_a_model(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.gguf", lambda writer: writer.add_type("adapter"))

    with pytest.raises(ModelLoadError, match=r"general.type must be 'model', got 'adapter'"):
        read_description(path)


def test_a_head_count_may_be_given_for_each_layer(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.gguf", lambda writer: writer.add_head_count_kv([2, 2]))

    config = read_description(path).config

    assert config.cache_shape.num_kv_heads == 2  # type: ignore[union-attr]
    assert config.vocab_size == 50
    assert config.tie_word_embeddings is True  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["attn_q", "attn_qkv"])
def test_fused_queries_have_the_biases_of_others(tmp_path: Path, name: str) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor(f"blk.0.{name}.bias", np.zeros(64, np.float32))

    config = read_description(_write(tmp_path / "a.gguf", change)).config

    assert isinstance(config, DecoderConfig)
    assert config.attention[0].qkv_bias


@pytest.mark.parametrize("layer", [1, None])
def test_biases_of_queries_may_begin_after_delta_nets(tmp_path: Path, layer: int | None) -> None:
    sizes = {"conv_kernel": 4, "state_size": 16, "group_count": 2, "time_step_rank": 4}

    def change(writer: gguf.GGUFWriter) -> None:
        for suffix, value in sizes.items():
            writer.add_uint32(f"qwen35.ssm.{suffix}", value)
        writer.add_ssm_inner_size(64)
        writer.add_uint32("qwen35.full_attention_interval", 2)
        if layer is not None:
            writer.add_tensor(f"blk.{layer}.attn_q.bias", np.zeros(128, np.float32))

    config = read_description(_write(tmp_path / "a.gguf", change, architecture="qwen35")).config

    assert isinstance(config, DecoderConfig)
    assert [mixer.qkv_bias for mixer in config.attention] == [layer is not None]


@pytest.mark.parametrize("suffix", ["scaling.factor", "scale_linear"])
@pytest.mark.parametrize("value", [0.0, 1.0, 4.0])
def test_a_factor_without_a_type_scales_rope_linearly(
    tmp_path: Path, suffix: str, value: float
) -> None:
    path = _write(tmp_path / "a.gguf", lambda w: w.add_float32(f"llama.rope.{suffix}", value))

    config = read_description(path).config

    assert isinstance(config, DecoderConfig)
    assert rope_of(config).factor == (value or 1.0)


@pytest.mark.parametrize(
    ("suffix", "factor"),
    [
        ("attn_factor", 1.5 * (0.1 * math.log(4.0) + 1.0)),  # llama.cpp multiplies YaRN's own.
        ("yarn_attn_factor", 1.5),  # What its converter writes, and the rest of it ignores.
    ],
)
def test_yarn_scales_attention_as_the_keys_say(tmp_path: Path, suffix: str, factor: float) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)
        writer.add_float32(f"llama.rope.scaling.{suffix}", 1.5)

    config = read_description(_write(tmp_path / "a.gguf", change)).config

    assert isinstance(config, DecoderConfig)
    assert rope_of(config).attention_factor == pytest.approx(factor)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_key_heads_of_phi2_are_those_of_its_tensors(tmp_path: Path, heads: int) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_head_count_kv(4)  # As llama.cpp's converter always writes.
        writer.add_layer_norm_eps(1e-5)
        for name, rows in (("blk.0.attn_k.weight", 16 * heads), ("output.weight", 50)):
            writer.add_tensor(name, np.zeros((rows, 64), np.float32))

    config = read_description(_write(tmp_path / "a.gguf", change, architecture="phi2")).config

    assert config.cache_shape.num_kv_heads == heads  # type: ignore[union-attr]


def test_the_documentation_lists_what_opens() -> None:
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")

    assert [name for name in (*ARCHITECTURES, *PRE_TOKENIZERS) if f"`{name}`" not in page] == []
