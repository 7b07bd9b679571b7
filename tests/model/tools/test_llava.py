"""LLaVA in MLC's format has the tensors of MLC LLM, and answers like what it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.open_decoder import load_model
from aiomlc.runtime.towers.tower_model import TowerModel
from aiomlc.tools.convert import convert_weights
from aiomlc.tools.gen_config import gen_config
from tests.model.families.test_vision_families import open_session
from tests.model.tiny_models import Weights, write_safetensors
from tests.model.tiny_vision import CONFIGS, IMAGES, PROMPTS, vision_weights, write_vision_model
from tests.model.tools.group_reference import FORMATS, quantize_groups, unpack
from tests.model.weight_files import from_bf16, to_bf16

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")
pytestmark = pytest.mark.usefixtures("model_cache")

_PROJECTOR = [
    f"multi_modal_projector.linear_{number}.{part}"
    for number in (1, 2)
    for part in ("bias", "q_scale", "q_weight")
]
_LAYER = [
    *("input_layernorm.weight", "post_attention_layernorm.weight"),
    *(
        f"{module}.{part}"
        for module in (
            "mlp.down_proj",
            "mlp.gate_up_proj",
            "self_attn.o_proj",
            "self_attn.qkv_proj",
        )
        for part in ("q_scale", "q_weight")
    ),
]


async def convert(source: Path, output: Path, quantization: str) -> Path:
    await gen_config(source, output, quantization=quantization, conv_template="llava")
    await convert_weights(source, output, quantization=quantization)
    return output


async def rows(directory: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what the tower makes of an image."""
    model = await load_model(
        directory,
        device="auto",
        mode="local",
        engine_config=EngineConfig(num_threads=2),
        on_progress=None,
    )
    assert isinstance(model.vision, TowerModel)
    (image,) = await model.vision.batcher.run([ImageData(IMAGES[0])])
    return image.rows


@pytest.mark.parametrize("has_processor", [True, False])
async def test_a_converted_directory_answers_like_its_source(
    tmp_path: Path, has_processor: bool
) -> None:
    source = write_vision_model(tmp_path / "source", "llava")
    stored = {name: from_bf16(to_bf16(value)) for name, value in vision_weights(source).items()}
    write_safetensors(source / "model.safetensors", stored)
    directory = await convert(source, tmp_path / "mlc", "q0f32")
    if not has_processor:  # MLC LLM writes none.
        (directory / "preprocessor_config.json").unlink()

    answers = []
    for path in (source, directory):
        async with open_session(path) as session:
            found = await session.answers("llava", PROMPTS)
            # The requests run at once: what one finds of another in the cache depends on timing.
            answers.append([(answer.tokens, answer.logprobs) for answer in found])
    assert answers[1] == answers[0]


async def test_the_projector_is_quantized_and_the_tower_is_not(tmp_path: Path) -> None:
    source = write_vision_model(tmp_path / "source", "llava")
    weights = vision_weights(source)
    directory = await convert(source, tmp_path / "mlc", "q4f16_1")

    index = json.loads((directory / "tensor-cache.json").read_text())
    records = {r["name"]: r for shard in index["records"] for r in shard["records"]}
    tower = {name for name in weights if name.startswith("vision_tower.vision_model.")}
    text = [f"language_model.model.layers.{layer}.{name}" for layer in range(2) for name in _LAYER]
    vocabulary = [
        f"language_model.{module}.{part}"
        for module in ("lm_head", "model.embed_tokens")
        for part in ("q_scale", "q_weight")
    ]
    assert set(records) == {
        *tower,
        *text,
        *_PROJECTOR,
        *vocabulary,
        "language_model.model.norm.weight",
    }
    assert {records[name]["dtype"] for name in tower} == {"float16"}
    patches = "vision_tower.vision_model.embeddings.patch_embedding.weight"
    assert records[patches]["shape"] == [48, 3, 14, 14]

    exact = write_vision_model(tmp_path / "exact", "llava")
    write_safetensors(exact / "model.safetensors", _rounded(weights))
    expected, actual = await rows(exact), await rows(directory)
    limit = 0.015 * np.abs(expected).max()  # The projector's inputs are rounded to 8 bits.
    assert np.abs(actual - expected).max() <= limit
    assert np.abs(actual - await rows(source)).max() > 2 * limit


def _rounded(weights: Weights) -> Weights:
    """Return weights as MLC's format has those of a tower and a projector."""
    form = FORMATS["q4f16_1"]
    rounded: Weights = {}
    for name, value in weights.items():
        rounded[name] = value.astype(np.float16).astype(np.float32)
        if name.startswith("multi_modal_projector.") and value.ndim == 2:
            words, scales = quantize_groups(value, form)
            scales = scales.astype(np.float16).astype(np.float32)
            rounded[name] = unpack(words, scales, value.shape[1], form)
    return rounded


async def test_the_config_has_the_fields_of_mlc_llm(tmp_path: Path) -> None:
    source = write_vision_model(tmp_path / "source", "llava")
    config = json.loads((source / "config.json").read_text())
    config["text_config"] |= {"_name_or_path": "lmsys/vicuna-7b-v1.5"}
    (source / "config.json").write_text(json.dumps(config))

    await gen_config(source, tmp_path / "mlc", quantization="q4f16_1", conv_template="llava")

    written = json.loads((tmp_path / "mlc" / "mlc-chat-config.json").read_text())
    inner = written["model_config"]
    assert written["model_type"] == "llava"
    assert inner["image_token_index"] == CONFIGS["llava"]["image_token_index"]
    assert inner["vision_config"] == CONFIGS["llava"]["vision_config"]
    assert (inner["text_architecture"], inner["context_window_size"]) == ("LlamaForCausalLM", 1024)
    text = inner["text_config"]
    assert "_name_or_path" not in text
    assert (text["hidden_size"], text["intermediate_size"]) == (64, 96)
    assert (text["position_embedding_base"], text["context_window_size"]) == (10000.0, 1024)


@pytest.mark.parametrize("name", ["llava_siglip", "pixtral"])
async def test_a_tower_that_mlc_llm_lacks_is_refused(tmp_path: Path, name: str) -> None:
    source = write_vision_model(tmp_path / "source", name)

    with pytest.raises(BadRequestError, match="MLC's format has LLaVA with a tower of CLIP"):
        await convert_weights(source, tmp_path / "mlc", quantization="q4f16_1")


async def test_w4a8_is_refused(tmp_path: Path) -> None:
    model = write_vision_model(tmp_path / "model", "llava")

    with pytest.raises(BadRequestError, match="quantization w4a8 does not support LLaVA") as error:
        await convert_weights(model, tmp_path / "out", quantization="w4a8")

    assert error.value.param == "quantization"
    assert not (tmp_path / "out").exists()
