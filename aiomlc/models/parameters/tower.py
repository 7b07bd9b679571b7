"""The parameters that all towers share: those of their layers and projectors."""

from __future__ import annotations

__all__ = ("linear", "matrix", "norm", "projector_steps", "tower_layers", "vector")

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aiomlc.models.config.decoder import NormKind
from aiomlc.models.config.tower import (
    LinearStep,
    NormStep,
    ProjectorStep,
    StandardizeStep,
    TowerConfig,
)
from aiomlc.models.parameters.parameter import Parameter, RowOrder


def tower_layers(config: TowerConfig) -> Iterator[Parameter]:
    """Yield the parameters of a tower's layers, and of the norm after them."""
    names = config.names
    for layer in range(config.num_hidden_layers):
        yield from _layer(f"layers.{layer}", f"{names.layers}.{layer}", config)
    if config.post_norm:
        yield from norm("post_norm", names.post_norm, config.hidden_size, config.norm_kind)


def projector_steps(prefix: str, steps: Sequence[ProjectorStep]) -> Iterator[Parameter]:
    """Yield the parameters of a projector."""
    for index, step in enumerate(steps):
        name = f"{prefix}.{index}.layer"
        match step:
            case NormStep():
                for parameter in norm(name, step.source, step.size, step.norm_kind):
                    yield replace(parameter, weight_offset=step.offset)
            case LinearStep(transposed=True):
                product = matrix(name, (step.source,), step.outputs, step.inputs)
                yield replace(product, fused_source=step.source, fused_layout="inputs")
            case LinearStep():
                shape = (step.outputs, step.inputs)
                yield from linear(name, (step.source,), shape, bias=step.bias)
            case StandardizeStep():
                yield vector(f"{name}.bias", (step.bias,), step.size)
                yield vector(f"{name}.scale", (step.scale,), step.size)
            case _:
                pass


def _layer(name: str, source: str, config: TowerConfig) -> Iterator[Parameter]:
    names, hidden, inner = config.names, config.hidden_size, config.intermediate_size
    heads = config.num_heads * config.head_dim
    yield from norm(f"{name}.norm1", f"{source}.{names.attention_norm}", hidden, config.norm_kind)
    qkv = [f"{source}.{part}" for part in names.qkv]
    for parameter in linear(
        f"{name}.attention.qkv", qkv, (3 * heads, hidden), bias=config.qkv_bias
    ):
        yield replace(parameter, row_order=_pair_order(config, 2 * config.num_heads))
    if config.qk_norm != "none":
        size = heads if config.qk_norm == "full_width" else config.head_dim
        for part, own in zip("qk", names.qk_norm, strict=True):
            sources = (f"{source}.{own}.weight",)
            weights = vector(f"{name}.attention.{part}_norm.weight", sources, size)
            yield replace(weights, row_order=_pair_order(config, 1))
    output = (f"{source}.{names.output}",)
    yield from linear(f"{name}.output", output, (hidden, heads), bias=config.output_bias)
    yield from norm(f"{name}.norm2", f"{source}.{names.mlp_norm}", hidden, config.norm_kind)
    up = [f"{source}.{part}" for part in names.up]
    up_name = f"{name}.mlp.{'gate_up_proj' if config.gated else 'up_proj'}"
    yield from linear(up_name, up, (inner * (1 + config.gated), hidden), bias=config.mlp_bias)
    down = (f"{source}.{names.down}",)
    yield from linear(f"{name}.mlp.down_proj", down, (hidden, inner), bias=config.mlp_bias)
    if config.layer_scale:
        for index, scale in enumerate(names.scales, 1):
            yield vector(f"{name}.scale{index}.weight", (f"{source}.{scale}",), hidden)
    if config.output_norms:
        for index, own in enumerate(names.output_norms, 1):
            module = f"{source}.{own}"
            yield from norm(f"{name}.output_norm{index}", module, hidden, config.norm_kind)


def _pair_order(config: TowerConfig, heads: int) -> RowOrder | None:
    """Return the order of the rows of heads whose pairs are not half a head apart.

    Their halves are rotated apart, or the dimensions of a pair are neighbors.
    """
    if config.alternates_rows:
        return RowOrder(heads, config.head_dim // 2, (1, 1))

    part = config.head_dim // 4
    return RowOrder(heads, 2, (part, part)) if config.halves_heads else None


def linear(
    name: str, modules: Sequence[str], shape: tuple[int, int], *, bias: bool
) -> Iterator[Parameter]:
    """Yield the parameters of a matrix of stacked modules, `[outputs, inputs]`."""
    yield matrix(name, tuple(f"{module}.weight" for module in modules), *shape)
    if bias:
        yield vector(f"{name}.bias", tuple(f"{module}.bias" for module in modules), shape[0])


def norm(name: str, module: str, size: int, kind: NormKind) -> Iterator[Parameter]:
    """Yield the parameters of a norm."""
    yield vector(f"{name}.weight", (f"{module}.weight",), size)
    if kind == "layer":
        yield vector(f"{name}.bias", (f"{module}.bias",), size)


def matrix(name: str, sources: tuple[str, ...], rows: int, columns: int) -> Parameter:
    """Return a matrix; its sources are stacked."""
    return Parameter(name, "matrix", (rows, columns), sources)


def vector(name: str, sources: tuple[str, ...], size: int) -> Parameter:
    """Return a vector; its sources are joined."""
    return Parameter(name, "vector", (size,), sources)
