"""The parameters of a vision tower."""

from __future__ import annotations

__all__ = ("vision_parameters",)

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aiomlc.models.config.decoder import NormKind
from aiomlc.models.config.vision import (
    LinearStep,
    NormStep,
    ProjectorStep,
    StandardizeStep,
    VisionConfig,
)
from aiomlc.models.parameters.parameter import Parameter, RowOrder


def vision_parameters(config: VisionConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a tower and its projector, under the graph's names."""
    return (*_embeddings(config), *_layers(config), *_projector(config))


def _embeddings(config: VisionConfig) -> Iterator[Parameter]:
    names, hidden = config.names, config.hidden_size
    yield _matrix("patch_embed", (f"{names.patch}.weight",), hidden, config.patch_inputs)
    for frame in range(1, config.num_frames if config.separates_frames else 1):
        source = f"{names.patch}.weight.{frame}"
        yield _matrix(f"frame_embeds.{frame - 1}", (source,), hidden, config.patch_inputs)
    # Vectors that are added to some rows only, as matrices of one input.
    if config.has_class_token:
        yield _column("class_embed", names.class_token, hidden)
        if config.patch_bias:
            yield _column("patch_bias", f"{names.patch}.bias", hidden)
    elif config.patch_bias:
        yield _vector("patch_embed.bias", (f"{names.patch}.bias",), hidden)
    if config.num_positions:
        yield _matrix("position_embed", (names.positions,), config.num_positions, hidden)
    if config.pre_norm:
        yield from _norm("pre_norm", names.pre_norm, hidden, config.norm_kind)


def _layers(config: VisionConfig) -> Iterator[Parameter]:
    names, hidden = config.names, config.hidden_size
    for layer in range(config.num_hidden_layers):
        yield from _layer(f"layers.{layer}", f"{names.layers}.{layer}", config)
    if config.post_norm:
        yield from _norm("post_norm", names.post_norm, hidden, config.norm_kind)


def _projector(config: VisionConfig) -> Iterator[Parameter]:
    yield from _steps("projector", config.projector)
    for index, feature in enumerate(config.features):
        yield from _steps(f"features.{index}", feature.projector)
    if config.newline:
        yield _vector("newline", (config.newline,), config.embedded_size)


def _steps(prefix: str, steps: Sequence[ProjectorStep]) -> Iterator[Parameter]:
    for index, step in enumerate(steps):
        name = f"{prefix}.{index}.layer"
        match step:
            case NormStep():
                for parameter in _norm(name, step.source, step.size, step.norm_kind):
                    yield replace(parameter, weight_offset=step.offset)
            case LinearStep(transposed=True):
                matrix = _matrix(name, (step.source,), step.outputs, step.inputs)
                yield replace(matrix, fused_source=step.source, fused_layout="inputs")
            case LinearStep():
                shape = (step.outputs, step.inputs)
                yield from _linear(name, (step.source,), shape, bias=step.bias)
            case StandardizeStep():
                yield _vector(f"{name}.bias", (step.bias,), step.size)
                yield _vector(f"{name}.scale", (step.scale,), step.size)
            case _:
                pass


def _layer(name: str, source: str, config: VisionConfig) -> Iterator[Parameter]:
    names, hidden, inner = config.names, config.hidden_size, config.intermediate_size
    heads = config.num_heads * config.head_dim
    yield from _norm(f"{name}.norm1", f"{source}.{names.attention_norm}", hidden, config.norm_kind)
    qkv = [f"{source}.{part}" for part in names.qkv]
    for parameter in _linear(
        f"{name}.attention.qkv", qkv, (3 * heads, hidden), bias=config.qkv_bias
    ):
        yield replace(parameter, row_order=_pair_order(config, 2 * config.num_heads))
    if config.qk_norm != "none":
        size = heads if config.qk_norm == "full_width" else config.head_dim
        for part, norm in zip("qk", names.qk_norm, strict=True):
            sources = (f"{source}.{norm}.weight",)
            weights = _vector(f"{name}.attention.{part}_norm.weight", sources, size)
            yield replace(weights, row_order=_pair_order(config, 1))
    output = (f"{source}.{names.output}",)
    yield from _linear(f"{name}.output", output, (hidden, heads), bias=config.output_bias)
    yield from _norm(f"{name}.norm2", f"{source}.{names.mlp_norm}", hidden, config.norm_kind)
    up = [f"{source}.{part}" for part in names.up]
    up_name = f"{name}.mlp.{'gate_up_proj' if config.gated else 'up_proj'}"
    yield from _linear(up_name, up, (inner * (1 + config.gated), hidden), bias=config.mlp_bias)
    down = (f"{source}.{names.down}",)
    yield from _linear(f"{name}.mlp.down_proj", down, (hidden, inner), bias=config.mlp_bias)
    if config.layer_scale:
        for index, scale in enumerate(names.scales, 1):
            yield _vector(f"{name}.scale{index}.weight", (f"{source}.{scale}",), hidden)
    if config.output_norms:
        for index, norm in enumerate(names.output_norms, 1):
            module = f"{source}.{norm}"
            yield from _norm(f"{name}.output_norm{index}", module, hidden, config.norm_kind)


def _pair_order(config: VisionConfig, heads: int) -> RowOrder | None:
    """Return the order of the rows of heads whose pairs are not half a head apart.

    Their halves are rotated apart, or the dimensions of a pair are neighbors.
    """
    if config.alternates_rows:
        return RowOrder(heads, config.head_dim // 2, (1, 1))

    part = config.head_dim // 4
    return RowOrder(heads, 2, (part, part)) if config.halves_heads else None


def _linear(
    name: str, modules: Sequence[str], shape: tuple[int, int], *, bias: bool
) -> Iterator[Parameter]:
    yield _matrix(name, tuple(f"{module}.weight" for module in modules), *shape)
    if bias:
        yield _vector(f"{name}.bias", tuple(f"{module}.bias" for module in modules), shape[0])


def _norm(name: str, module: str, size: int, kind: NormKind) -> Iterator[Parameter]:
    yield _vector(f"{name}.weight", (f"{module}.weight",), size)
    if kind == "layer":
        yield _vector(f"{name}.bias", (f"{module}.bias",), size)


def _matrix(name: str, sources: tuple[str, ...], rows: int, columns: int) -> Parameter:
    return Parameter(name, "matrix", (rows, columns), sources)


def _column(name: str, source: str, size: int) -> Parameter:
    return replace(_matrix(name, (source,), size, 1), keep_float32=True)


def _vector(name: str, sources: tuple[str, ...], size: int) -> Parameter:
    return Parameter(name, "vector", (size,), sources)
