"""A GGUF file with a tower beside it answers like the directory that both were made from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

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

_NAME = "idefics3"
# Segments of the names of a directory, and what llama.cpp's converter makes of them.
_NAMES = {
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


def write_mmproj(path: Path, weights: Weights, projector: str = "idefics3") -> None:
    vision, settings = CONFIGS[_NAME]["vision_config"], PROCESSORS[_NAME]
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(projector)
    writer.add_vision_projection_dim(CONFIGS[_NAME]["text_config"]["hidden_size"])
    writer.add_vision_image_size(vision["image_size"])
    writer.add_vision_patch_size(vision["patch_size"])
    writer.add_vision_embedding_length(vision["hidden_size"])
    writer.add_vision_feed_forward_length(vision["intermediate_size"])
    writer.add_vision_block_count(vision["num_hidden_layers"])
    writer.add_vision_head_count(vision["num_attention_heads"])
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    writer.add_vision_projector_scale_factor(CONFIGS[_NAME]["scale_factor"])
    writer.add_uint32("clip.vision.preproc_image_size", settings["size"]["longest_edge"])
    for name, value in weights.items():
        for segment, own in _NAMES.items():
            name = name.replace(segment, own)
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_pair(directory: Path, source: Path) -> Path:
    """Write the decoder and the tower of a directory, and return the path of the decoder."""
    directory.mkdir()
    weights = vision_weights(source)
    is_tower = ("model.vision_model.", "model.connector.")
    tower = {name: value for name, value in weights.items() if name.startswith(is_tower)}
    text = {
        name.replace("model.text_model.", "model."): value
        for name, value in weights.items()
        if name not in tower
    }
    write_mmproj(directory / "mmproj-model.gguf", tower)

    def add_text(writer: gguf.GGUFWriter) -> None:
        add_byte_level(writer, vision_tokenizer(), "gpt-2", bos="<s>", eos="</s>")
        writer.add_chat_template(TEMPLATE)

    config: dict[str, Any] = CONFIGS[_NAME]["text_config"]
    return write_gguf(directory / "model.gguf", config, text, add_text)


async def test_a_tower_beside_a_gguf_file_reads_images(model_cache: Path, tmp_path: Path) -> None:
    path = write_pair(tmp_path / "gguf", write_vision_model(tmp_path / "source", _NAME))
    async with open_session(path) as session:
        check(_NAME, await session.answers(_NAME, PROMPTS))


def test_a_projector_that_is_not_supported_leaves_the_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_pair(tmp_path / "gguf", write_vision_model(tmp_path / "source", _NAME))
    assert read_description(path).vision is not None
    write_mmproj(path.parent / "mmproj-model.gguf", {"v.x": np.zeros(4, np.float32)}, "ldp")

    with caplog.at_level(logging.WARNING, logger="aiomlc"):
        assert read_description(path).vision is None

    assert "the projector 'ldp' is not supported" in caplog.text


def test_a_damaged_tower_is_an_error_of_its_file(tmp_path: Path) -> None:
    path = write_pair(tmp_path / "gguf", write_vision_model(tmp_path / "source", _NAME))
    (path.parent / "mmproj-model.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelLoadError) as caught:
        read_description(path)

    assert caught.value.path == path.parent / "mmproj-model.gguf"
