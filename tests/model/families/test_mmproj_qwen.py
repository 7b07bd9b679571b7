"""A GGUF file of Qwen with its tower beside it computes the same as transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.errors import ModelLoadError
from aiomlc.models import VisionConfig, read_description
from tests.model.families.test_towers import answers, check, close, encoded, open_model, stored
from tests.model.gguf_files import write_gguf
from tests.model.gguf_tokenizers import add_byte_level
from tests.model.tiny_models import TEMPLATE
from tests.model.tiny_towers import (
    PROMPTS,
    TOWERS,
    tower_tokenizer,
    tower_weights,
    write_tower_model,
)

pytest.importorskip("PIL", reason="requires Pillow, of the extra vision")

_KINDS = {
    "qwen2_vl": "qwen2vl_merger",
    "qwen2_5_vl": "qwen2.5vl_merger",
    "qwen3_vl": "qwen3vl_merger",
    "qwen3_5": "qwen3vl_merger",
}
# Segments of the names of a directory, and what llama.cpp's converter makes of them.
_NAMES = {
    "model.visual.": "visual.",
    "visual.patch_embed.proj": "v.patch_embd",
    "visual.pos_embed": "v.position_embd",
    "visual.blocks": "v.blk",
    "visual.merger.ln_q": "v.post_ln",
    "visual.merger.norm": "v.post_ln",
    "visual.merger.mlp.0": "mm.0",
    "visual.merger.mlp.2": "mm.2",
    "visual.merger.linear_fc1": "mm.0",
    "visual.merger.linear_fc2": "mm.2",
    "visual.deepstack_merger_list": "v.deepstack",
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "linear_fc": "fc",
}
# The older scripts gave the matrices of MLPs each other's names.
_OLD_NAMES = _NAMES | {"mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up"}


def _tensors(
    name: str, weights: Mapping[str, NDArray[np.float32]], names: Mapping[str, str]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for key, value in weights.items():
        for segment, own in names.items():
            key = key.replace(segment, own)
        if key == "v.patch_embd.weight":
            for end, frame in (("", 0), (".1", 1)):
                yield key + end, np.ascontiguousarray(value[:, :, frame])
        elif "attn_qkv" in key and name.startswith("qwen2"):
            for part, rows in zip("qkv", np.split(value, 3), strict=True):
                yield key.replace("qkv", part), rows
        else:
            yield key, value


def write_tower(
    path: Path, name: str, source: Path, names: Mapping[str, str] = _NAMES, pattern: int = 2
) -> None:
    tower = TOWERS[name]
    vision, processor = tower.vision, tower.processor
    is_first = name == "qwen2_vl"
    hidden = vision["embed_dim" if is_first else "hidden_size"]
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(_KINDS[name])
    writer.add_vision_projection_dim(64)
    writer.add_vision_image_size(560)
    writer.add_vision_patch_size(vision.get("patch_size", 14))
    writer.add_vision_embedding_length(hidden)
    # Of Qwen 2 VL, older files have 0, and newer ones the size of the decoder.
    writer.add_vision_feed_forward_length(0 if is_first else vision["intermediate_size"])
    writer.add_vision_block_count(vision["depth"])
    writer.add_vision_head_count(vision["num_heads"])
    writer.add_vision_attention_layernorm_eps(1e-6)
    if name == "qwen2_5_vl":
        writer.add_uint32("clip.vision.n_wa_pattern", pattern)
        writer.add_uint32("clip.vision.window_size", vision["window_size"])
    for field, values in (("image_mean", _CLIP_MEAN), ("image_std", _CLIP_STD)):
        writer.add_array(f"clip.vision.{field}", processor.get(field, values))
    writer.add_uint32("clip.vision.image_min_pixels", processor["size"]["shortest_edge"])
    writer.add_uint32("clip.vision.image_max_pixels", processor["size"]["longest_edge"])
    for key, value in _tensors(name, tower_weights(source, name), names):
        writer.add_tensor(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
_CLIP_STD = [0.26862954, 0.26130258, 0.27577711]


def write_pair(root: Path, name: str, **options: Any) -> Path:  # noqa: ANN401
    """Write the decoder and the tower of a model, and return the path of the decoder."""
    tower, source = TOWERS[name], write_tower_model(root / "source", name)
    config = tower.decoder.config(name)["text_config"]
    weights = tower.decoder.weights()
    text = {key.replace("model.language_model.", "model."): w for key, w in weights.items()}

    def add(writer: gguf.GGUFWriter) -> None:
        add_byte_level(writer, tower_tokenizer(tower), "gpt-2", bos="<s>", eos="</s>")
        writer.add_chat_template(TEMPLATE)
        if layers := tower.vision.get("deepstack_visual_indexes"):
            writer.add_uint32("qwen3vl.n_deepstack_layers", len(layers))

    path = write_gguf(root / "gguf" / "model.gguf", config, text, add)
    write_tower(path.parent / "mmproj-model.gguf", name, source, **options)
    return path


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize(
    ("name", "names"), [*((name, _NAMES) for name in _KINDS), ("qwen2_vl", _OLD_NAMES)]
)
def test_rows_and_answers_equal_transformers(
    tmp_path: Path, name: str, names: Mapping[str, str]
) -> None:
    anyio.run(_compare, write_pair(tmp_path, name, names=names), name)


async def _compare(path: Path, name: str) -> None:
    model = await open_model(path, prefill_chunk_size=128)
    expected = stored(name)
    prompts = [await encoded(model, name, prompt) for prompt in PROMPTS]
    for index, prompt in enumerate(prompts):
        assert prompt.token_ids.tolist() == expected[f"ids{index}"].tolist()
        if prompt.pieces:
            rows = np.concatenate([piece.rows for piece in prompt.pieces])
            scale = np.abs(expected[f"rows{index}"]).max()
            assert np.abs(rows - expected[f"rows{index}"]).max() <= 1e-5 * scale
    check(name, answers(model, prompts))
    close(model)


@pytest.mark.parametrize(
    ("pattern", "windows"), [(0, ()), (1, ()), (2, (0, 2)), (3, (0, 1)), (9, (0, 1, 2))]
)
def test_every_nth_layer_sees_whole_images(
    tmp_path: Path, pattern: int, windows: tuple[int, ...]
) -> None:
    description = read_description(write_pair(tmp_path, "qwen2_5_vl", pattern=pattern))

    assert isinstance(description.tower, VisionConfig)
    assert description.tower.window_layers == windows


def test_sections_of_a_fourth_axis_are_an_error(tmp_path: Path) -> None:
    path = write_pair(tmp_path, "qwen3_vl")
    data = path.read_bytes()
    key = b"qwen3vl.rope.dimension_sections"
    at = data.index(key) + len(key) + 4 + 4 + 8 + 3 * 4
    path.write_bytes(data[:at] + (1).to_bytes(4, "little") + data[at + 4 :])

    with pytest.raises(ModelLoadError, match=r"dimension_sections must be 0 after") as caught:
        read_description(path)

    assert caught.value.path == path
