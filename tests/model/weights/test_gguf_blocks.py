"""The blocks of GGUF are unpacked to exactly the numbers that the package `gguf` computes."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from aiomlc.errors import ModelLoadError
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.weights.convert import convert_weights
from aiomlc.weights.formats.source import Source, SourceTensor
from aiomlc.weights.plan import make_plan
from aiomlc.weights.storage.blocks import BLOCK_FORMATS

pytestmark = pytest.mark.anyio

ROWS, BLOCKS = 40, 6
#: The places of float16 numbers in the blocks of each type.
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "MXFP4": (),
}
LARGEST = 65504.0
EXTREMES = np.array(
    [0.0, -0.0, 2.0**-24, -(2.0**-24), 2.0**-14, 1.0, -1.0, LARGEST, -LARGEST], np.float16
)


def random_blocks(kind: str) -> NDArray[np.uint8]:
    """Return blocks of random bits whose float16 numbers are finite, extreme in a third of them."""
    random = np.random.default_rng(sum(kind.encode()))
    _, nbytes = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = random.integers(0, 256, (ROWS * BLOCKS, nbytes), dtype=np.uint8)
    blocks[:20] = 0
    blocks[20:40] = 255
    for offset in HALVES[kind]:
        halves = random.normal(0, 0.05, len(blocks)).astype(np.float16)
        halves[::3] = random.choice(EXTREMES, len(halves[::3]))
        blocks[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)
    if kind == "MXFP4":  # Products with larger exponents overflow.
        blocks[:, 0] = np.arange(len(blocks)) * 252 // (len(blocks) - 1)
    return blocks.reshape(ROWS, -1)


@pytest.mark.parametrize("kind", BLOCK_FORMATS)
async def test_blocks_are_dequantized_as_by_the_package(tmp_path: Path, kind: str) -> None:
    blocks = random_blocks(kind)
    expected = gguf.dequantize(blocks, GGMLQuantizationType[kind])
    columns = expected.shape[1]
    file = tmp_path / "model"
    file.write_bytes(b"1234" + blocks.tobytes())
    tensor = SourceTensor("a.weight", file, 4, kind, (ROWS, columns))
    source = Source(tmp_path, file, {"a.weight": tensor}, (file,), is_mlc=False)
    parameter = PackedParameter("a", "matrix", (("f32", ROWS),), (ROWS, columns), ("a.weight",))

    await convert_weights(make_plan([parameter], source), tmp_path / "packed", num_threads=2)

    packed = np.fromfile(tmp_path / "packed", np.float32).reshape(-1, columns, 16)
    actual = packed.transpose(0, 2, 1).reshape(-1, columns)[:ROWS]
    assert actual.tobytes() == expected.astype(np.float32).tobytes()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
async def test_floats_are_quantized_as_by_the_package(tmp_path: Path, dtype: str) -> None:
    random, columns = np.random.default_rng(8), BLOCKS * 32
    weights = random.normal(0, 0.05, (ROWS, columns)).astype(np.float32)
    weights[0], weights[1, 3:] = 0, 1e-9
    weights[2] = np.arange(columns) / 2  # Halves, in the first group exactly.
    weights[2, 31] = 127
    weights[3, ::32] = random.choice(EXTREMES, BLOCKS).astype(np.float32)
    if dtype == "f16":
        weights = weights.astype(np.float16).astype(np.float32)
    stored = weights.astype({"f32": np.float32, "f16": np.float16}[dtype]).tobytes()
    blocks = gguf.quantize(weights, GGMLQuantizationType.Q8_0).tobytes()

    packed = []
    for kind, data in ((dtype, stored), ("Q8_0", blocks)):
        file, path = tmp_path / kind, tmp_path / f"packed-{kind}"
        file.write_bytes(data)
        tensor = SourceTensor("a.weight", file, 0, kind, (ROWS, columns))
        source = Source(tmp_path, file, {"a.weight": tensor}, (file,), is_mlc=False)
        layout = (("u8g32f16z128", ROWS),)
        parameter = PackedParameter("a", "matrix", layout, (ROWS, columns), ("a.weight",))
        await convert_weights(make_plan([parameter], source), path, num_threads=2)
        packed.append(path.read_bytes())

    assert packed[0] == packed[1]


@pytest.mark.parametrize(
    ("value", "problem"),
    [(float("nan"), "a value is not finite"), (1e7, "outside of the range of float16")],
)
async def test_floats_that_cannot_be_quantized_are_an_error(
    tmp_path: Path, value: float, problem: str
) -> None:
    weights = np.ones((ROWS, 64), np.float32)
    weights[9, 40] = value
    file = tmp_path / "model"
    file.write_bytes(weights.tobytes())
    tensor = SourceTensor("a.weight", file, 0, "f32", (ROWS, 64))
    source = Source(tmp_path, file, {"a.weight": tensor}, (file,), is_mlc=False)
    layout = (("u8g32f16z128", ROWS),)
    parameter = PackedParameter("a", "matrix", layout, (ROWS, 64), ("a.weight",))

    with pytest.raises(ModelLoadError, match=rf"a\.weight: .*{problem}"):
        await convert_weights(make_plan([parameter], source), tmp_path / "packed", num_threads=1)


@pytest.mark.parametrize("kind", [kind for kind in BLOCK_FORMATS if kind != "MXFP4"])
async def test_a_scale_that_is_not_finite_is_an_error(tmp_path: Path, kind: str) -> None:
    for bits in (b"\x00\x7c", b"\x01\xfe"):
        for offset in HALVES[kind]:
            blocks = random_blocks(kind).reshape(ROWS * BLOCKS, -1)
            blocks[77, offset : offset + 2] = np.frombuffer(bits, np.uint8)
            file = tmp_path / "model"
            file.write_bytes(blocks.tobytes())
            columns = BLOCKS * gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0]
            tensor = SourceTensor("a.weight", file, 0, kind, (ROWS, columns))
            source = Source(tmp_path, file, {"a.weight": tensor}, (file,), is_mlc=False)
            parameter = PackedParameter(
                "a", "matrix", (("f32", ROWS),), (ROWS, columns), ("a.weight",)
            )

            with pytest.raises(ModelLoadError, match=r"a\.weight: a scale is not finite"):
                await convert_weights(
                    make_plan([parameter], source), tmp_path / "packed", num_threads=1
                )
