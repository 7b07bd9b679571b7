"""A directory of `w4a8` is the model that its checkpoint is when it is opened in `w4a8`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from tests.model.families.test_quantized_models import logits, open_model
from tests.model.tools.models import write_tiny

ARCHITECTURES = ("llama", "qwen2", "gemma2", "qwen3_moe_sparse")


def convert(model: Path, output: Path) -> None:
    """Write a directory of `w4a8`."""

    async def run() -> None:
        await convert_weights(model, output, quantization="w4a8")
        await gen_config(model, output, quantization="w4a8", conv_template="chatml")

    anyio.run(run)


def records_of(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the records of the index by name, each with the path of its shard."""
    index = json.loads((directory / "tensor-cache.json").read_bytes())
    return {
        record["name"]: {**record, "path": directory / shard["dataPath"]}
        for shard in index["records"]
        for record in shard["records"]
    }


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_have_the_bits_of_the_checkpoint(tmp_path: Path, architecture: str) -> None:
    model = write_tiny(tmp_path / "model", architecture)
    convert(model, tmp_path / "out")
    tokens: list[int] = []
    expected = logits(open_model(model, "w4a8"), tokens)

    actual = logits(open_model(tmp_path / "out"), tokens)

    assert np.array_equal(actual, expected)
    assert np.ptp(actual) > 0


def test_rows_have_a_scale_and_groups_of_18_bytes(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")

    convert(model, tmp_path / "out")

    config = json.loads((model / "config.json").read_bytes())
    records = records_of(tmp_path / "out")
    head = records["lm_head.q_weight"]
    groups = -(-config["hidden_size"] // 32)
    assert head["dtype"] == "uint8"
    assert head["format"] == "raw"
    assert head["shape"] == [config["vocab_size"], 4 + 18 * groups]
    norm = records["model.norm.weight"]
    assert (norm["dtype"], norm["format"]) == ("float32", "raw")
    assert norm["nbytes"] == 4 * config["hidden_size"]
    assert not (tmp_path / "out" / "tensor-cache-b16.json").exists()
    assert json.loads((tmp_path / "out" / "mlc-chat-config.json").read_bytes())["quantization"] == (
        "w4a8"
    )


def set_group_scale(row: bytearray) -> None:
    row[4] = 18


def set_group_offset(row: bytearray) -> None:
    row[4:6] = struct.pack("<Bb", 17, -127)


def set_scale(row: bytearray) -> None:
    row[:4] = struct.pack("<f", float("inf"))


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (set_group_scale, "the levels of a group must be from -128 to 127"),
        (set_group_offset, "the levels of a group must be from -128 to 127"),
        (set_scale, "a scale is not finite"),
    ],
)
def test_rows_that_no_model_can_have_are_refused(
    tmp_path: Path, change: Callable[[bytearray], None], problem: str
) -> None:
    model = write_tiny(tmp_path / "model", "llama")
    convert(model, tmp_path / "out")
    record = records_of(tmp_path / "out")["lm_head.q_weight"]
    data = bytearray(record["path"].read_bytes())
    begin = record["byteOffset"] + record["shape"][1]  # The second row.
    row = data[begin : begin + record["shape"][1]]
    change(row)
    data[begin : begin + len(row)] = row
    record["path"].write_bytes(data)

    with pytest.raises(ModelLoadError, match=problem) as error:
        open_model(tmp_path / "out")
    assert "lm_head.q_weight" in str(error.value)


@pytest.mark.usefixtures("model_cache")
def test_a_tensor_of_another_width_is_refused(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")
    convert(model, tmp_path / "out")
    path = tmp_path / "out" / "tensor-cache.json"
    index = json.loads(path.read_bytes())
    for shard in index["records"]:
        for record in shard["records"]:
            if record["name"] == "lm_head.q_weight":
                rows, width = record["shape"]
                record["shape"] = [rows * 2, width // 2]
    path.write_text(json.dumps(index))

    with pytest.raises(ModelLoadError, match=r"wrong shape: expected \[\d+, \d+\], got"):
        open_model(tmp_path / "out")


@pytest.mark.anyio
async def test_a_search_cannot_be_asked_for(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model", "llama")

    with pytest.raises(BadRequestError, match="search must be False for w4a8"):
        await convert_weights(model, tmp_path / "out", quantization="w4a8", search=True)
