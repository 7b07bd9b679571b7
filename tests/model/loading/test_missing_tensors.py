"""A tensor that a quantized checkpoint lacks is named as its files would name it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiomlc import ModelLoadError
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from tests.model.quantized_files import QUANTIZERS
from tests.model.quantized_models import write_quantized
from tests.model.weight_files import write_raw_safetensors


@pytest.mark.parametrize(
    ("quantizer", "part"),
    [
        ("awq_g32", "qweight"),
        ("awq_g32", "scales"),
        ("awq_g32", "qzeros"),
        ("gptq_ordered", "qweight"),
        ("gptq_ordered", "scales"),
        ("w4a16_asymmetric", "weight_packed"),
        ("w4a16_asymmetric", "weight_scale"),
        ("fp8_block", "weight"),
    ],
)
def test_a_missing_part_of_a_matrix_is_named(tmp_path: Path, quantizer: str, part: str) -> None:
    write_quantized(tmp_path, QUANTIZERS[quantizer])
    name = f"model.layers.0.self_attn.o_proj.{part}"
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    del header[name]
    write_raw_safetensors(path, header, content[end:])

    with pytest.raises(ModelLoadError, match="tensor is missing") as caught:
        ModelFacts(find_model(tmp_path)).check_tensors()

    assert caught.value.tensor == name
