"""Converted weights are the files that MLC LLM writes, and nothing less ever appears."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from aiomlc.errors import BadRequestError, ModelLoadError, ModelNotFoundError
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.tools import shard_writer
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from aiomlc.tools.mlc_format import MLC_FORMATS
from aiomlc.tools.shards import Record, lay_out
from tests.model.quantized_files import QUANTIZERS
from tests.model.quantized_models import write_quantized
from tests.model.tiny_models import tiny_weights
from tests.model.tools.fp8_reference import to_fp8, weight_scale
from tests.model.tools.group_reference import FORMATS, quantize_groups
from tests.model.tools.models import check_md5, checksums, read_tensors, write_tiny
from tests.model.weight_files import from_bf16, to_bf16, write_safetensors, write_shards

pytestmark = pytest.mark.anyio

# MD5 checksums of the files that MLC LLM's converter (79d603f0, on a CPU) writes for these models.
_REFERENCE: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(
    (Path(__file__).parents[1] / "reference" / "mlc_weights.json").read_text()
)
# `w4a8` has the bits of the opened checkpoint: test_progressive_files.py.
_OF_FLOATS = [
    name
    for name, mlc_format in MLC_FORMATS.items()
    if not mlc_format.source_method and not mlc_format.is_progressive
]


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "llama", "llama")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("architecture", _REFERENCE)
async def test_all_files_are_those_of_mlc_llm(tmp_path: Path, architecture: str) -> None:
    model = write_tiny(tmp_path / "model", architecture)

    for quantization, expected in _REFERENCE[architecture].items():
        output = tmp_path / quantization
        await convert_weights(model, output, quantization=quantization)

        assert checksums(output) == expected, quantization


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("quantization", _OF_FLOATS)
async def test_the_tensors_equal_a_reference(
    llama: Path, tmp_path: Path, quantization: str
) -> None:
    mlc_format = MLC_FORMATS[quantization]
    done = await convert_weights(llama, tmp_path / "out", quantization=quantization)

    tensors = read_tensors(tmp_path / "out")
    weights = tiny_weights("llama")
    at = "model.layers.1.self_attn"
    qkv = np.concatenate([weights[f"{at}.{part}_proj.weight"] for part in "qkv"])
    norm, dtype = tensors["model.norm.weight"], mlc_format.dtype
    half = weights["model.norm.weight"].astype(np.float16)
    assert (
        norm.tobytes()
        == (half if dtype == "float16" else to_bf16(weights["model.norm.weight"])).tobytes()
    )
    for name, weight in ((f"{at}.qkv_proj", qkv), ("lm_head", weights["lm_head.weight"])):
        is_quantized = mlc_format.bits > 0 or mlc_format.fp8 is not None
        if not is_quantized or (mlc_format.keeps_vocabulary and name == "lm_head"):
            stored = weight.astype(np.float16) if dtype == "float16" else to_bf16(weight)
            assert tensors[f"{name}.weight"].tobytes() == stored.tobytes()
        elif mlc_format.fp8 is not None:
            scale = weight_scale(weight) if mlc_format.has_scale else np.float32(1)
            codes = to_fp8(weight.astype(np.float16).astype(np.float32) / scale, mlc_format.fp8)
            np.testing.assert_array_equal(tensors[f"{name}.q_weight"], codes)
            assert (f"{name}.q_scale" in tensors) == mlc_format.has_scale
            if mlc_format.has_scale:
                assert tensors[f"{name}.q_scale"] == to_bf16(np.array([scale]))
        else:
            words, scales = quantize_groups(weight, FORMATS[quantization])
            stored = scales.astype(np.float16) if dtype == "float16" else to_bf16(scales)
            if mlc_format.is_transposed:
                words, stored = words.T, stored.T
            np.testing.assert_array_equal(tensors[f"{name}.q_weight"], words)
            np.testing.assert_array_equal(tensors[f"{name}.q_scale"], stored)
    inputs = [from_bf16(t)[0] for n, t in tensors.items() if n.endswith("q_calibration_scale")]
    assert inputs == [1.0] * (12 if mlc_format.has_input_scale else 0)  # Four of each layer.
    assert done.num_parameters == sum(weight.size for weight in weights.values())
    check_md5(tmp_path / "out")


async def test_shards_of_a_checkpoint_are_read_in_the_order_of_the_index(tmp_path: Path) -> None:
    single = write_tiny(tmp_path / "single", "llama")
    sharded = tmp_path / "sharded"
    shutil.copytree(single, sharded)
    (sharded / "model.safetensors").unlink()
    items = [(name, ("f32", weight)) for name, weight in tiny_weights("llama").items()]
    write_shards(sharded, [dict(items[:9]), dict(items[9:20]), dict(items[20:])])
    path = sharded / "model.safetensors.index.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))

    await convert_weights(single, tmp_path / "a", quantization="q4f16_1")
    await convert_weights(sharded, tmp_path / "b", quantization="q4f16_1")

    a, b = read_tensors(tmp_path / "a"), read_tensors(tmp_path / "b")
    assert next(iter(b)) == "lm_head.q_weight"  # The index is sorted.
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        np.testing.assert_array_equal(tensor, b[name])


def test_the_layout_of_shards_is_that_of_mlc_llm() -> None:
    mib = 1 << 18  # uint32 elements
    sizes = [10, 7, 16, 15, 3, 40, 1, 15, 16]

    shards = lay_out(Record(f"t{i}", (size * mib,), "uint32") for i, size in enumerate(sizes))

    assert [
        [(record.name, record.offset >> 20) for record in shard.records] for shard in shards
    ] == [
        [("t2", 0)],
        [("t0", 0), ("t1", 10)],
        [("t5", 0)],
        [("t3", 0), ("t4", 15), ("t6", 18)],
        [("t7", 0), ("t8", 15)],
    ]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
async def test_16_bit_checkpoints_are_widened_exactly(
    llama: Path, tmp_path: Path, dtype: str
) -> None:
    weights = tiny_weights("llama")
    halves = {name: weight.astype(np.float16) for name, weight in weights.items()}
    stored: dict[str, tuple[str, Any]] = {
        name: (dtype, halves[name] if dtype == "f16" else to_bf16(weight))
        for name, weight in weights.items()
    }
    write_safetensors(llama / "model.safetensors", stored)

    name = "q0f16" if dtype == "f16" else "q0bf16"
    await convert_weights(llama, tmp_path / "out", quantization=name)

    tensors = read_tensors(tmp_path / "out")
    assert tensors["lm_head.weight"].tobytes() == stored["lm_head.weight"][1].tobytes()


@pytest.mark.parametrize("quantization", ["q4f16_0", "e4m3_e4m3_f16"])
async def test_blocks_and_threads_do_not_change_the_files(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantization: str
) -> None:
    await convert_weights(llama, tmp_path / "a", quantization=quantization, num_threads=1)
    monkeypatch.setattr(shard_writer, "_BLOCK_ELEMENTS", 640)
    monkeypatch.setattr(shard_writer, "_TRANSPOSED_BLOCK_ELEMENTS", 1000)
    await convert_weights(llama, tmp_path / "b", quantization=quantization, num_threads=3)

    assert checksums(tmp_path / "a") == checksums(tmp_path / "b")


async def test_progress_grows_to_1(llama: Path, tmp_path: Path) -> None:
    seen: list[LoadProgress] = []

    await convert_weights(llama, tmp_path / "out", quantization="q0f32", on_progress=seen.append)

    fractions = [progress.fraction or 0 for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1


async def test_existing_weights_are_only_replaced_by_force(llama: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    (output / "ndarray-cache.json").write_text("{}")
    (output / "params_shard_7.bin").write_text("old")

    with pytest.raises(BadRequestError, match=r"already contains ndarray-cache\.json.*--force"):
        await convert_weights(llama, output, quantization="q4f16_1")
    await convert_weights(llama, output, quantization="q4f16_1", force=True)

    names = {path.name for path in output.iterdir()}
    assert names == {"notes.txt", "params_shard_0.bin", "tensor-cache.json"}


async def test_a_cancelled_conversion_leaves_nothing(llama: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "out"
    with anyio.CancelScope() as scope:
        await convert_weights(
            llama, output, quantization="q4f16_1", on_progress=lambda _: scope.cancel()
        )

    assert scope.cancelled_caught
    assert list((tmp_path / "new").iterdir()) == []


async def test_a_full_disk_is_an_error_that_leaves_nothing(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fail)

    with pytest.raises(ModelLoadError, match=r"params_shard_0\.bin: cannot write: No space left"):
        await convert_weights(llama, tmp_path / "new" / "out", quantization="q4f16_1")

    assert list((tmp_path / "new").iterdir()) == []


async def test_a_value_that_is_not_finite_names_its_tensor(llama: Path, tmp_path: Path) -> None:
    weights = tiny_weights("llama")
    weights["model.layers.2.mlp.up_proj.weight"][3, 5] = np.inf
    write_safetensors(
        llama / "model.safetensors", {name: ("f32", value) for name, value in weights.items()}
    )

    with pytest.raises(ModelLoadError, match="not finite") as caught:
        await convert_weights(llama, tmp_path / "out", quantization="q4f16_1")

    assert caught.value.tensor == "model.layers.2.mlp.up_proj.weight"


@pytest.mark.parametrize("quantization", ["e4m3_e4m3_f16", "e5m2_e5m2_f16"])
async def test_an_infinite_weight_in_fp8_names_its_tensor(
    llama: Path, tmp_path: Path, quantization: str
) -> None:
    weights = tiny_weights("llama")
    weights["model.layers.2.mlp.up_proj.weight"][3, 5] = 65504 if "e5m2" in quantization else np.nan
    write_safetensors(
        llama / "model.safetensors", {name: ("f32", value) for name, value in weights.items()}
    )

    with pytest.raises(ModelLoadError, match="not finite, or outside of the range") as caught:
        await convert_weights(llama, tmp_path / "out", quantization=quantization)

    assert caught.value.tensor == "model.layers.2.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantization": "q4f16_ft"}, "q4f16_ft': its packing is that of one generation of GPUs"),
        ({"quantization": "q5"}, "quantization must be one of q0f16, .*, got 'q5'"),
        ({"device": "cuda"}, "device must be auto or cpu, .*, got 'cuda'"),
        ({"device": "metal"}, "Device is not found on your local environment: metal"),
        ({"source_format": "awq"}, "source_format must be one of auto, .*, got 'awq'"),
        ({"quantization": "q0f16", "search": True}, "search needs a quantization with scales"),
        ({"quantization": "e4m3_e4m3_f16", "search": True}, "search needs a quantization with"),
        ({"model_type": "cohere"}, "'cohere' cannot be converted"),
        ({"model_type": "llava_next"}, "'llava_next' cannot be converted"),
        (
            {"quantization": "e5m2_e5m2_f16", "model_type": "mistral"},
            "e5m2_e5m2_f16 supports the model types llama, mixtral, olmo2, .* got 'mistral'",
        ),
        (
            {"quantization": "fp8_e4m3fn_bf16_block_scale_static_activation"},
            "MLC LLM has it only for ministral3",
        ),
    ],
)
async def test_invalid_arguments_are_refused(
    llama: Path, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message):
        await convert_weights(llama, tmp_path / "out", **{"quantization": "q4f16_1", **arguments})

    assert not (tmp_path / "out").exists()


async def test_experts_are_not_transposed(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "mixtral")

    with pytest.raises(BadRequestError, match="q4f16_0 does not support mixtures of experts"):
        await convert_weights(model, tmp_path / "out", quantization="q4f16_0")


async def test_a_missing_or_converted_model_is_refused(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="cannot find model"):
        await convert_weights(tmp_path / "none", tmp_path / "out", quantization="q4f16_1")

    await convert_weights(llama, tmp_path / "out", quantization="q4f16_1")
    with pytest.raises(BadRequestError, match="has the weights of an MLC directory"):
        await convert_weights(
            llama, tmp_path / "again", quantization="q4f16_1", source=tmp_path / "out"
        )


async def test_a_quantized_checkpoint_is_refused(tmp_path: Path) -> None:
    write_quantized(tmp_path / "model", QUANTIZERS["awq_g128"])

    with pytest.raises(BadRequestError, match=r"already quantized \(awq\).*; pass the model that"):
        await convert_weights(tmp_path / "model", tmp_path / "out", quantization="q4f16_1")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_directory_in_mlc_format_is_not_converted_again(
    tmp_path: Path, llama: Path
) -> None:
    await convert_weights(llama, tmp_path / "mlc", quantization="q4f16_1")
    await gen_config(llama, tmp_path / "mlc", quantization="q4f16_1", conv_template="chatml")

    for function in (convert_weights, partial(gen_config, conv_template="chatml")):
        with pytest.raises(BadRequestError, match="is in MLC's format already"):
            await function(tmp_path / "mlc", tmp_path / "again", quantization="q4f16_1")

    assert not (tmp_path / "again").exists()
