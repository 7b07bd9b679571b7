"""The parameters of a vision tower."""

from __future__ import annotations

__all__ = ("vision_parameters",)

from collections.abc import Iterator
from dataclasses import replace

from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.models.parameters.tower import (
    linear,
    matrix,
    norm,
    projector_steps,
    tower_layers,
    vector,
)


def vision_parameters(config: VisionConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a tower and its projector, under the graph's names."""
    return (
        *_embeddings(config),
        *tower_layers(config),
        *_attention_pool(config),
        *_projector(config),
    )


def _embeddings(config: VisionConfig) -> Iterator[Parameter]:
    names, hidden = config.names, config.hidden_size
    yield matrix("patch_embed", (f"{names.patch}.weight",), hidden, config.patch_inputs)
    for frame in range(1, config.num_frames if config.separates_frames else 1):
        source = f"{names.patch}.weight.{frame}"
        yield matrix(f"frame_embeds.{frame - 1}", (source,), hidden, config.patch_inputs)
    # Vectors that are added to some rows only, as matrices of one input.
    if config.has_class_token:
        yield _column("class_embed", names.class_token, hidden)
        if config.patch_bias:
            yield _column("patch_bias", f"{names.patch}.bias", hidden)
    elif config.patch_bias:
        yield vector("patch_embed.bias", (f"{names.patch}.bias",), hidden)
    if config.num_positions:
        yield matrix("position_embed", (names.positions,), config.num_positions, hidden)
    if config.pre_norm:
        yield from norm("pre_norm", names.pre_norm, hidden, config.norm_kind)


def _attention_pool(config: VisionConfig) -> Iterator[Parameter]:
    if not config.attention_pool:
        return

    head, hidden, inner = config.names.attention_pool, config.hidden_size, config.intermediate_size
    attention, name = f"{head}.attention", "attention_pool"
    yield _column(f"{name}.probe", f"{head}.probe", hidden)
    yield matrix(f"{name}.qkv", (f"{attention}.in_proj_weight",), 3 * hidden, hidden)
    yield vector(f"{name}.qkv.bias", (f"{attention}.in_proj_bias",), 3 * hidden)
    yield from linear(f"{name}.output", (f"{attention}.out_proj",), (hidden, hidden), bias=True)
    yield from norm(f"{name}.norm", f"{head}.layernorm", hidden, config.norm_kind)
    yield from linear(f"{name}.mlp.up_proj", (f"{head}.mlp.fc1",), (inner, hidden), bias=True)
    yield from linear(f"{name}.mlp.down_proj", (f"{head}.mlp.fc2",), (hidden, inner), bias=True)


def _projector(config: VisionConfig) -> Iterator[Parameter]:
    yield from projector_steps("projector", config.projector)
    for index, feature in enumerate(config.features):
        yield from projector_steps(f"features.{index}", feature.projector)
    if config.newline:
        yield vector("newline", (config.newline,), config.embedded_size)


def _column(name: str, source: str, size: int) -> Parameter:
    return replace(matrix(name, (source,), size, 1), keep_float32=True)
