"""A tower of llama.cpp's own converter answers like the directory that it was made from.

`AIOMLC_LLAMA_CPP` is the directory with its `convert_hf_to_gguf.py`: `make converter` downloads it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from tests.model import tiny_towers, tiny_vision
from tests.model.families.test_vision_families import Answer, Session, open_session
from tests.model.llama_cpp_converter import Converter, running_converter
from tests.model.tiny_models import Weights, write_safetensors

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")
load_file = pytest.importorskip("safetensors.numpy").load_file
_SOURCE = os.environ.get("AIOMLC_LLAMA_CPP", "")

pytestmark = [
    pytest.mark.skipif(not _SOURCE, reason="needs AIOMLC_LLAMA_CPP (make converter)"),
    pytest.mark.usefixtures("model_cache"),
]
# Models whose directory the converter reads for the decoder, too.
_WHOLE = {
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}
_NAMES = ("idefics3", "smolvlm", "internvl", "pixtral", "mistral3", "gemma3", *_WHOLE)
_ARCHITECTURES = {
    "gemma3_text": "Gemma3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# What the converter needs, or has in place of another value.
_CHANGES: Mapping[str, dict[str, Any]] = {
    # It takes the parts of the projector for layers, of which there must be as many.
    "internvl": {
        "vision_config": {"architectures": ["InternVisionModel"], "num_hidden_layers": 4},
        "max_dynamic_patch": tiny_vision.PROCESSORS["internvl"]["max_patches"],
    },
    "qwen2_5_vl": {"vision_config": {"window_size": 112}},  # The only one that there is.
    "gemma3": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {
            "query_pre_attn_scalar": 32,
            "sliding_window_pattern": 6,
            "layer_types": None,
        },
    },
}
_NO_SCAN = {"do_pan_and_scan": False, "image_seq_length": 9}  # Which a file does not have.
_ROWS = (8, 4096)  # Of an image, at least and at most, since a file of Qwen's models has no bounds.
_CLIP = {  # What transformers assumes, and the converter does not.
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_TOWER = ("vision_tower.", "multi_modal_projector.")
_PREFIXES = {"model.text_model.": "model.", "language_model.": ""}


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with running_converter(Path(_SOURCE)) as running:
        yield running


def write_directory(directory: Path, name: str) -> Path:
    """Write a model, with what the converter needs in its config."""
    if name in tiny_vision.CONFIGS:
        tiny_vision.write_vision_model(directory, name)
    else:
        tiny_towers.write_tower_model(directory, name)
        settings = dict(tiny_towers.TOWERS[name].processor) | _NO_SCAN
        if name in _WHOLE:
            row = (2 * settings.get("patch_size", 14)) ** 2
            bounds = [rows * row for rows in _ROWS]
            settings["size"] = dict(zip(("shortest_edge", "longest_edge"), bounds, strict=True))
        (directory / "preprocessor_config.json").write_text(json.dumps(settings))
        (directory / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    path = directory / "preprocessor_config.json"
    fields = _CLIP | json.loads(path.read_text())
    if name == "pixtral":  # A file has one size.
        fields["size"] = {"longest_edge": tiny_vision.CONFIGS[name]["vision_config"]["image_size"]}
    path.write_text(json.dumps(fields))
    path = directory / "config.json"
    config = json.loads(path.read_text())
    if name in _WHOLE:
        config["architectures"] = [_WHOLE[name]]
        config["text_config"].pop("architectures", None)  # Which would be that of the text.
        config["vision_config"] = {"patch_size": 14} | config["vision_config"]
    for field, value in _CHANGES.get(name, {}).items():
        config[field] = {**config[field], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(config))
    if name == "internvl":  # As transformers 5 writes the names.
        weights = tiny_vision.vision_weights(directory)
        names = {old: f"model.{old}" if old.startswith(_TOWER) else old for old in weights}
        renamed = {names[old]: value for old, value in weights.items()}
        write_safetensors(directory / "model.safetensors", renamed)
    return directory


def write_decoder(directory: Path, source: Path) -> Path:
    """Write the decoder of a model as a directory of its own."""
    config = json.loads((source / "config.json").read_text())
    text = config["text_config"]
    text |= {"architectures": [_ARCHITECTURES[text["model_type"]]]}
    text |= {"tie_word_embeddings": config.get("tie_word_embeddings", False)}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(text))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_bytes((source / name).read_bytes())
    weights: Weights = {}
    for name, value in load_file(source / "model.safetensors").items():
        prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
        if prefix or name.startswith("lm_head."):
            weights[_PREFIXES.get(prefix, "") + name.removeprefix(prefix)] = value
    write_safetensors(directory / "model.safetensors", weights)
    return directory


def write_pair(converter: Converter, root: Path, source: Path, outtype: str) -> Path:
    """Convert a model; return the path of its decoder."""
    directory = root / outtype
    directory.mkdir()
    path = directory / "model.gguf"
    config = json.loads((source / "config.json").read_text())
    if config["architectures"][0] in _WHOLE.values():
        decoder = source
    elif not (decoder := root / "decoder").exists():
        write_decoder(decoder, source)
    options = ["--no-mtp"] if config["model_type"] == "qwen3_5" else []
    assert not converter.convert(decoder, path, "--outtype", "f32", *options)
    tower = directory / "mmproj-model.gguf"
    assert not converter.convert(source, tower, "--outtype", outtype, "--mmproj")
    return path


async def rows(session: Session, image: int) -> NDArray[np.float32]:
    (embedded,) = await session.vision.batcher.run([ImageData(tiny_vision.IMAGES[image])])
    return embedded.rows


async def answer(session: Session) -> Answer:
    async def encode(text: str) -> list[int]:
        return session.model.tokenizer.encode(text)

    placeholder = session.vision.placeholder
    images = [ImageData(tiny_vision.IMAGES[image]) for image in (0, 1)]
    prompt = await session.vision.prompt(f"{placeholder} or {placeholder}?", images, encode)
    return await session.answer(prompt, 0)


@pytest.mark.parametrize("name", _NAMES)
async def test_a_converted_tower_answers_like_its_directory(
    converter: Converter, tmp_path: Path, name: str
) -> None:
    source = write_directory(tmp_path / "source", name)
    path = write_pair(converter, tmp_path, source, "f32")
    # The converter rounds the projector of Gemma 3 to float16.
    limit, distance = (1e-3, 1e-2) if name == "gemma3" else (1e-5, 2e-4)
    async with open_session(source) as session:
        expected, logprobs = await rows(session, 0), (await answer(session)).logprobs
    async with open_session(path) as session:
        actual, others = await rows(session, 0), (await answer(session)).logprobs

    assert np.abs(actual - expected).max() <= limit * np.abs(expected).max()
    for first, second in zip(logprobs, others, strict=True):
        same = first.keys() & second.keys()
        assert len(same) >= len(first) - 1
        assert max(abs(first[token] - second[token]) for token in same) <= distance


@pytest.mark.parametrize(
    ("outtype", "matrix_format", "limit"),
    [("f16", "f16", 3e-3), ("bf16", "bf16", 3e-2), ("q8_0", "u8g32f16z128", 3e-2)],
)
async def test_towers_of_fewer_bits_stay_close(
    converter: Converter, tmp_path: Path, outtype: str, matrix_format: str, limit: float
) -> None:
    source = write_directory(tmp_path / "source", "gemma3")
    path = write_pair(converter, tmp_path, source, outtype)
    async with open_session(source) as session:
        expected = await rows(session, 0)
    async with open_session(path) as session:
        assert np.abs(await rows(session, 0) - expected).max() <= limit * np.abs(expected).max()
    if outtype == "q8_0":  # A file that has 8 bits keeps them.
        with pytest.raises(BadRequestError, match="leave vision_quantization out") as caught:
            async with open_session(path, vision_quantization="q8_0"):
                pass
        assert caught.value.param == "vision_quantization"
        kept = ModelFacts(find_model(path), "q0bf16").tower
        assert kept is not None
        assert kept.quantization.layouts["layers.0.output"] == ((matrix_format, 32),)
    tower = ModelFacts(find_model(path)).tower
    assert tower is not None
    assert tower.quantization.layouts["layers.0.output"] == ((matrix_format, 32),)
