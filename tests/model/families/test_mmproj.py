"""A GGUF file with a tower beside it answers like the directory that both were made from."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from aiomlc.errors import ModelLoadError
from aiomlc.models import read_description
from tests.model.families.test_vision_families import check, open_session
from tests.model.gguf_files import write_gguf
from tests.model.gguf_tokenizers import add_byte_level
from tests.model.tiny_models import TEMPLATE, Weights
from tests.model.tiny_vision import (
    CONFIGS,
    PROCESSORS,
    PROMPTS,
    vision_tokenizer,
    vision_weights,
    write_vision_model,
)

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")

# Segments of the names of a directory, and what llama.cpp's converter makes of them.
_IDEFICS3 = {
    "model.vision_model.embeddings.patch_embedding": "v.patch_embd",
    "model.vision_model.embeddings.position_embedding": "v.position_embd",
    "model.vision_model.post_layernorm": "v.post_ln",
    "model.vision_model.encoder.layers": "v.blk",
    "model.connector.modality_projection.proj": "mm.model.fc",
    "layer_norm": "ln",
    "self_attn.out_proj": "attn_out",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
# The older scripts of llama.cpp, which wrote LLaVA, gave the matrices of MLPs each other's names.
_LLAVA = _IDEFICS3 | {
    "vision_tower.vision_model.embeddings.class_embedding": "v.class_embd",
    "vision_tower.vision_model.embeddings.patch_embedding": "v.patch_embd",
    "vision_tower.vision_model.embeddings.position_embedding": "v.position_embd",
    "vision_tower.vision_model.pre_layrnorm": "v.pre_ln",
    "vision_tower.vision_model.encoder.layers": "v.blk",
    "multi_modal_projector.linear_1": "mm.0",
    "multi_modal_projector.linear_2": "mm.2",
    "image_newline": "model.image_newline",
    "mlp.fc1": "ffn_down",
    "mlp.fc2": "ffn_up",
}
_TOWER = ("model.vision_model.", "model.connector.", "vision_tower.", "multi_modal_projector.")
_TEXT = {"model.text_model.": "model.", "language_model.": ""}
Add = Callable[[gguf.GGUFWriter], object]


def add_idefics3(writer: gguf.GGUFWriter) -> None:
    writer.add_clip_projector_type("idefics3")
    writer.add_vision_projector_scale_factor(CONFIGS["idefics3"]["scale_factor"])
    longest = PROCESSORS["idefics3"]["size"]["longest_edge"]
    writer.add_uint32("clip.vision.preproc_image_size", longest)


def add_llava(writer: gguf.GGUFWriter) -> None:
    """Add what the first scripts wrote, which knew one projector only."""
    writer.add_bool("clip.has_llava_projector", True)
    writer.add_bool("clip.use_gelu", False)


def add_llava_siglip(writer: gguf.GGUFWriter) -> None:
    writer.add_clip_projector_type("mlp")
    layers = CONFIGS["llava_siglip"]["vision_config"]["num_hidden_layers"]
    writer.add_array("clip.vision.feature_layer", [layers])


def add_llava_next(writer: gguf.GGUFWriter) -> None:
    writer.add_clip_projector_type("mlp")
    pairs = CONFIGS["llava_next"]["image_grid_pinpoints"]
    writer.add_array("clip.vision.image_grid_pinpoints", [side for pair in pairs for side in pair])


_ADDED: Mapping[str, Add] = {
    "idefics3": add_idefics3,
    "llava": add_llava,
    "llava_next": add_llava_next,
    "llava_siglip": add_llava_siglip,
}
_HALF = [0.5, 0.5, 0.5]
_CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])


def write_mmproj(path: Path, weights: Weights, name: str, add: Add | None = None) -> None:
    vision = CONFIGS[name]["vision_config"]
    is_clip = vision["model_type"] == "clip_vision_model"
    # CLIP's last layer is not used, and the scripts left it out.
    layers = vision["num_hidden_layers"] - is_clip
    mean, deviation = _CLIP if is_clip else (_HALF, _HALF)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(CONFIGS[name]["text_config"]["hidden_size"])
    writer.add_vision_image_size(vision["image_size"])
    writer.add_vision_patch_size(vision["patch_size"])
    writer.add_vision_embedding_length(vision["hidden_size"])
    writer.add_vision_feed_forward_length(vision["intermediate_size"])
    writer.add_vision_block_count(layers)
    writer.add_vision_head_count(vision["num_attention_heads"])
    writer.add_vision_attention_layernorm_eps(1e-5 if is_clip else 1e-6)
    writer.add_vision_image_mean(mean)
    writer.add_vision_image_std(deviation)
    (add or _ADDED[name])(writer)
    for tensor, value in weights.items():
        for segment, own in (_IDEFICS3 if name == "idefics3" else _LLAVA).items():
            tensor = tensor.replace(segment, own)
        writer.add_tensor(tensor, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_pair(
    directory: Path, source: Path, name: str = "idefics3", image_token: str = "<image>"
) -> Path:
    """Write the decoder and the tower of a directory, and return the path of the decoder."""
    directory.mkdir()
    weights = vision_weights(source)
    tower = {key: w for key, w in weights.items() if key.startswith((*_TOWER, "image_newline"))}
    text = {}
    for key in weights.keys() - tower.keys():
        prefix = next((prefix for prefix in _TEXT if key.startswith(prefix)), "")
        text[_TEXT.get(prefix, "") + key.removeprefix(prefix)] = weights[key]
    write_mmproj(directory / "mmproj-model.gguf", tower, name)

    def add_text(writer: gguf.GGUFWriter) -> None:
        settings = vision_tokenizer().to_str().replace('"<image>"', json.dumps(image_token))
        tokenizer = Tokenizer.from_str(settings)
        add_byte_level(writer, tokenizer, "gpt-2", bos="<s>", eos="</s>")
        writer.add_chat_template(TEMPLATE)

    config: dict[str, Any] = CONFIGS[name]["text_config"]
    return write_gguf(directory / "model.gguf", config, text, add_text)


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", _ADDED)
async def test_a_tower_beside_a_gguf_file_reads_images(tmp_path: Path, name: str) -> None:
    path = write_pair(tmp_path / "gguf", write_vision_model(tmp_path / "source", name), name)
    async with open_session(path) as session:
        check(name, await session.answers(name, PROMPTS))


@pytest.mark.usefixtures("model_cache")
async def test_an_unknown_token_stands_for_images_in_a_vocabulary_of_text(tmp_path: Path) -> None:
    source = write_vision_model(tmp_path / "source", "llava")
    path = write_pair(tmp_path / "gguf", source, "llava", image_token="<unk>")
    async with open_session(path) as session:
        assert session.model.tokenizer.token_id("<image>") is None
        check("llava", await session.answers("llava", PROMPTS))


@pytest.mark.usefixtures("model_cache")
async def test_a_vocabulary_without_such_a_token_is_an_error(tmp_path: Path) -> None:
    source = write_vision_model(tmp_path / "source", "llava")
    path = write_pair(tmp_path / "gguf", source, "llava", image_token="<other>")

    with pytest.raises(ModelLoadError, match="the tokenizer has no token '<image>'"):
        async with open_session(path):
            pass


def test_a_tower_of_another_model_is_an_error_of_its_file(tmp_path: Path) -> None:
    path = write_pair(tmp_path / "gguf", write_vision_model(tmp_path / "source", "idefics3"))
    tower = path.parent / "mmproj-model.gguf"

    def add_qwen(writer: gguf.GGUFWriter) -> None:
        writer.add_clip_projector_type("qwen3vl_merger")

    # One layer's features follow each row.
    tensors = {"v.deepstack.0.norm.weight": np.zeros(4, np.float32)}
    write_mmproj(tower, tensors, "idefics3", add_qwen)

    problem = r"its rows have 128 numbers, and those of model\.gguf have 64"
    with pytest.raises(ModelLoadError, match=problem) as caught:
        read_description(path)

    assert caught.value.path == tower


@pytest.mark.parametrize(
    ("tensor", "layers", "kind"),
    [("mm.3.weight", [], "mlp_norm"), ("mm.2.weight", [1, 2], "mlp of several layers")],
)
def test_projectors_that_call_themselves_mlp_are_told_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tensor: str, layers: list[int], kind: str
) -> None:
    source = write_vision_model(tmp_path / "source", "llava")
    path = write_pair(tmp_path / "gguf", source, "llava")

    def add(writer: gguf.GGUFWriter) -> None:
        add_llava(writer)
        if layers:
            writer.add_array("clip.vision.feature_layer", layers)

    tensors = {tensor: np.zeros(4, np.float32)}
    write_mmproj(path.parent / "mmproj-model.gguf", tensors, "llava", add)

    with caplog.at_level(logging.WARNING, logger="aiomlc"):
        assert read_description(path).tower is None

    assert f"the projector {kind!r} is not supported" in caplog.text


def test_a_projector_that_is_not_supported_leaves_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_pair(tmp_path / "gguf", write_vision_model(tmp_path / "source", "idefics3"))
    assert read_description(path).tower is not None

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_clip_projector_type("ldp")

    tensors = {"v.x": np.zeros(4, np.float32)}
    write_mmproj(path.parent / "mmproj-model.gguf", tensors, "idefics3", add)

    with caplog.at_level(logging.WARNING, logger="aiomlc"):
        assert read_description(path).tower is None

    assert "the projector 'ldp' is not supported" in caplog.text


def test_a_damaged_tower_is_an_error_of_its_file(tmp_path: Path) -> None:
    path = write_pair(tmp_path / "gguf", write_vision_model(tmp_path / "source", "idefics3"))
    (path.parent / "mmproj-model.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelLoadError) as caught:
        read_description(path)

    assert caught.value.path == path.parent / "mmproj-model.gguf"
