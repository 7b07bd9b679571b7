"""The quantized weights of a checkpoint are kept, in the files that MLC LLM writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import ml_dtypes
import numpy as np
import pytest

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.tools import shard_writer
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from aiomlc.weights.formats.safetensors import read_safetensors_file
from tests.model.families.test_quantized_models import logits, open_model
from tests.model.quantized_files import QUANTIZERS
from tests.model.quantized_models import write_quantized
from tests.model.tools.models import (
    FP8_BLOCK,
    check_md5,
    checksums,
    read_tensors,
    write_fp8_blocks,
    write_tiny,
)

Array = np.ndarray[Any, Any]
AWQ, FP8 = "q4f16_autoawq", "fp8_e4m3fn_bf16_block_scale"
_REFERENCE: Mapping[str, Mapping[str, str]] = json.loads(
    (Path(__file__).parents[1] / "reference" / "mlc_kept_weights.json").read_text()
)


def write_awq(directory: Path, quantizer: str = "awq_g128") -> Path:
    """Write a tiny Llama that AutoAWQ quantized."""
    write_quantized(directory, QUANTIZERS[quantizer])
    return directory


#: The checkpoints of the reference, and their formats. Scales are bfloat16 or float32.
SOURCES: Mapping[str, tuple[Callable[[Path], Path], str]] = {
    "llama_awq": (write_awq, AWQ),
    "qwen3_fp8": (
        partial(write_fp8_blocks, architecture="qwen3", scale_dtype=ml_dtypes.bfloat16),
        FP8,
    ),
    "qwen3_moe_fp8": (
        partial(write_fp8_blocks, architecture="qwen3_moe_sparse", scale_dtype=np.float32),
        FP8,
    ),
}


def stored(directory: Path) -> dict[str, Array]:
    """Return the tensors of a checkpoint as they are stored."""
    dtypes: dict[str, Any] = {"f16": np.float16, "i32": np.uint32, "f8e4m3": np.uint8}
    path = directory / "model.safetensors"
    return {
        name: np.memmap(path, dtypes.get(t.dtype, np.uint16), "r", t.offset, t.shape)
        for name, t in read_safetensors_file(path).items()
    }


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", _REFERENCE)
async def test_all_files_are_those_of_mlc_llm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write, quantization = SOURCES[name]
    model = write(tmp_path / "model")
    await convert_weights(model, tmp_path / "out", quantization=quantization)

    assert checksums(tmp_path / "out") == _REFERENCE[name]

    check_md5(tmp_path / "out")
    monkeypatch.setattr(shard_writer, "_BLOCK_ELEMENTS", 640)
    await convert_weights(model, tmp_path / "b", quantization=quantization, num_threads=3)
    assert checksums(tmp_path / "b") == _REFERENCE[name]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_words_of_awq_stand_side_by_side(tmp_path: Path) -> None:
    source = stored(write_awq(tmp_path / "model"))
    await convert_weights(
        tmp_path / "model", tmp_path / "out", quantization=AWQ, source_format="awq"
    )

    tensors = read_tensors(tmp_path / "out")
    at = "model.layers.1"
    for suffix in ("qweight", "qzeros", "scales"):
        qkv = [source[f"{at}.self_attn.{part}_proj.{suffix}"] for part in "qkv"]
        gate_up = [source[f"{at}.mlp.{part}_proj.{suffix}"] for part in ("gate", "up")]
        np.testing.assert_array_equal(
            tensors[f"{at}.self_attn.qkv_proj.{suffix}"], np.concatenate(qkv, axis=1)
        )
        np.testing.assert_array_equal(
            tensors[f"{at}.mlp.gate_up_proj.{suffix}"], np.concatenate(gate_up, axis=1)
        )
        name = f"{at}.mlp.down_proj.{suffix}"
        np.testing.assert_array_equal(tensors[name], source[name])
    for name in ("model.embed_tokens.weight", "lm_head.weight", f"{at}.input_layernorm.weight"):
        np.testing.assert_array_equal(tensors[name], source[name])


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_blocks_of_fp8_and_their_scales_are_stacked(tmp_path: Path) -> None:
    write = partial(write_fp8_blocks, scale_dtype=ml_dtypes.bfloat16)
    source = stored(write(tmp_path / "model", "qwen3_moe_sparse"))
    await convert_weights(tmp_path / "model", tmp_path / "out", quantization=FP8)

    tensors = read_tensors(tmp_path / "out")
    at = "model.layers.1"
    for suffix in ("weight", "weight_scale_inv"):
        qkv = [source[f"{at}.self_attn.{part}_proj.{suffix}"] for part in "qkv"]
        np.testing.assert_array_equal(
            tensors[f"{at}.self_attn.c_attn.{suffix}"], np.concatenate(qkv)
        )
        experts = [
            np.concatenate([source[f"{at}.mlp.experts.{i}.{p}_proj.{suffix}"] for p in parts])
            for i in range(9)
            for parts in (("gate", "up"),)
        ]
        np.testing.assert_array_equal(
            tensors[f"{at}.mlp.moe_gate_up_proj.{suffix}"], np.stack(experts)
        )
    np.testing.assert_array_equal(tensors[f"{at}.mlp.gate.weight"], source[f"{at}.mlp.gate.weight"])


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", SOURCES)
def test_the_directory_gives_the_logits_of_the_checkpoint(tmp_path: Path, name: str) -> None:
    write, quantization = SOURCES[name]
    model, output = write(tmp_path / "model"), tmp_path / "out"

    async def convert() -> None:
        await convert_weights(model, output, quantization=quantization)
        await gen_config(model, output, quantization=quantization, conv_template="chatml")

    anyio.run(convert)
    tokens: list[int] = []
    expected = logits(open_model(model), tokens)
    chosen: list[int] = []

    actual = logits(open_model(output), chosen)

    assert chosen == tokens
    # Scales of float32 are stored as bfloat16.
    limit = 5e-3 * np.ptp(expected) if name == "qwen3_moe_fp8" else 0
    assert np.abs(actual - expected).max() <= limit


@pytest.mark.anyio
async def test_the_configuration_has_the_sizes_of_the_blocks(tmp_path: Path) -> None:
    write_fp8_blocks(tmp_path / "model", "qwen3", np.float32)

    path = await gen_config(
        tmp_path / "model", tmp_path / "out", quantization=FP8, conv_template="chatml"
    )

    document = json.loads(path.read_text())
    assert document["quantization"] == FP8
    assert document["model_config"]["weight_block_size"] == list(FP8_BLOCK)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("quantizer", "quantization", "message"),
    [
        ("", AWQ, f"{AWQ} needs a checkpoint that AutoAWQ quantized .*; .* is not quantized"),
        ("gptq_4_g64", AWQ, "is quantized by gptq"),
        ("awq_g32", AWQ, "needs a checkpoint .* in groups of 128; .* has groups of 32"),
        ("awq_g128", "e5m2_e5m2_f16", r"already quantized \(awq\) and cannot be converted to e5m2"),
        ("fp8_block", FP8, "supports the model types qwen3, qwen3_moe, .* got 'llama'"),
    ],
)
async def test_another_checkpoint_is_refused(
    tmp_path: Path, quantizer: str, quantization: str, message: str
) -> None:
    model = tmp_path / "model"
    if quantizer:
        write_quantized(model, QUANTIZERS[quantizer])
    else:
        write_tiny(model, "llama")

    with pytest.raises(BadRequestError, match=message):
        await convert_weights(model, tmp_path / "out", quantization=quantization)

    assert not (tmp_path / "out").exists()


@pytest.mark.anyio
async def test_fp8_without_blocks_is_refused(tmp_path: Path) -> None:
    path = write_fp8_blocks(tmp_path / "model", "qwen3", np.float32) / "config.json"
    config = json.loads(path.read_text())
    del config["quantization_config"]["weight_block_size"]
    path.write_text(json.dumps(config))

    with pytest.raises(BadRequestError, match="has no weight_block_size"):
        await convert_weights(tmp_path / "model", tmp_path / "out", quantization=FP8)


@pytest.mark.anyio
async def test_parts_of_a_matrix_cannot_share_a_block(tmp_path: Path) -> None:
    model = write_fp8_blocks(tmp_path / "model", "qwen3", np.float32, block=(128, 64))

    with pytest.raises(ModelLoadError, match="must be a multiple of the 128 of a block, got 192"):
        await convert_weights(model, tmp_path / "out", quantization=FP8)


@pytest.mark.anyio
async def test_a_lora_adapter_is_not_merged_into_kept_weights(tmp_path: Path) -> None:
    model = write_awq(tmp_path / "model")

    with pytest.raises(
        BadRequestError, match=f"cannot be merged into the weights that {AWQ} keeps"
    ):
        await convert_weights(
            model, tmp_path / "out", quantization=AWQ, lora_adapter=tmp_path / "adapter"
        )


@pytest.mark.anyio
async def test_a_scale_out_of_range_names_its_tensor(tmp_path: Path) -> None:
    model = write_awq(tmp_path / "model")
    path = model / "model.safetensors"
    tensor = read_safetensors_file(path)["model.layers.1.mlp.up_proj.scales"]
    with path.open("r+b") as file:
        file.seek(tensor.offset + 6)
        file.write(np.float16(np.inf).tobytes())

    with pytest.raises(ModelLoadError, match="not finite") as caught:
        await convert_weights(model, tmp_path / "out", quantization=AWQ)

    assert caught.value.tensor == "model.layers.1.mlp.up_proj.scales"
