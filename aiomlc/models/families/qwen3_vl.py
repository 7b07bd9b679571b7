"""Qwen 3 VL: Qwen 3 whose RoPE positions have a time, a height and a width.

An image adds features of several layers of its tower to the first layers (deepstack,
arXiv:2406.04334).
"""

from __future__ import annotations

__all__ = ("parse", "parse_moe")

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope_sections import with_sections
from aiomlc.models.families import qwen3, qwen3_moe
from aiomlc.models.families.qwen2_5_vl import text_fields

_SECTIONS = (24, 20, 20)
_THETA = 500_000.0
_DEEPSTACK_LAYERS = 3


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_vl`."""
    text = text_fields(fields).with_defaults(rope_theta=_THETA)
    return _with_images(fields, text, qwen3.parse(text), "qwen3_vl")


def parse_moe(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_vl_moe`."""
    text = text_fields(fields).with_defaults(rope_theta=_THETA).replaced(norm_topk_prob=True)
    config = qwen3_moe.parse(text)
    layout = replace(config.checkpoint, hf_experts_layout="stacked_inputs")
    return _with_images(fields, text, replace(config, checkpoint=layout), "qwen3_vl_moe")


def _with_images(
    fields: Fields, text: Fields, config: DecoderConfig, model_type: str
) -> DecoderConfig:
    vision = fields.nested("vision_config")
    name = "deepstack_visual_indexes"
    layers = len(vision.integers(name)) if name in vision else _DEEPSTACK_LAYERS
    if layers > config.num_hidden_layers:
        problem = f"must have at most {config.num_hidden_layers} layers, got {layers}"
        raise vision.error(name, problem)

    config = replace(config, model_type=model_type, num_piece_layers=layers)
    return with_sections(text, config, _SECTIONS, interleaved=True)
