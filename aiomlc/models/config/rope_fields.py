"""The RoPE fields of configs."""

from __future__ import annotations

__all__ = ("parse_rope",)

import math
from dataclasses import asdict, replace

from aiomlc.models.config.fields import Fields, quote
from aiomlc.models.config.rope import DEFAULT_THETA, RopeConfig

_ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
_OUTER_FIELDS = {"rope_theta": "theta", "partial_rotary_factor": "partial_rotary_factor"}


def parse_rope(
    fields: Fields,
    *,
    head_dim: int,
    context: int,
    partial_rotary_factor: float | None = None,
    theta: float = DEFAULT_THETA,
    pads_to_head_dim: bool = False,
) -> RopeConfig:
    """Read RoPE settings in the format of transformers 5, of earlier versions or of MLC.

    Args:
        fields: The model's config.
        head_dim: Dimensions of a head.
        context: Tokens of the longest sequence.
        partial_rotary_factor: Default if the config omits it; None for a family that always
            rotates the whole head.
        theta: Default base if the config omits it.
        pads_to_head_dim: See `RopeConfig`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported,
            or if both formats are there and disagree.
    """

    def parse(settings: Fields) -> RopeConfig:
        return _parse_type(fields, settings, head_dim, context, partial_rotary_factor, theta)

    parameters, scaling = fields.nested("rope_parameters"), fields.nested("rope_scaling")
    is_new, is_old = bool(parameters.names()), bool(scaling.names())
    name = "rope_parameters" if is_new else "rope_scaling"
    rope = parse(parameters if is_new else scaling)
    if is_new and is_old:
        # Only the format of transformers 5 has these two among the RoPE settings.
        outer = {field: getattr(rope, name) for field, name in _OUTER_FIELDS.items()}
        _check_agreement(fields, rope, parse(scaling.with_defaults(**outer)))
    if not all(map(math.isfinite, (rope.attention_factor, *rope.inverse_frequencies(head_dim)))):
        raise fields.error(name, "must give finite frequencies")

    # Padded, the factor would also scale the dimensions that are not rotated.
    if pads_to_head_dim and (factor := rope.attention_factor) != 1.0:
        problem = f"must have an attention factor of 1.0 with partial rotation, got {factor}"
        raise fields.error("rope_parameters", problem)

    return replace(rope, pads_to_head_dim=pads_to_head_dim)


def _check_agreement(fields: Fields, parameters: RopeConfig, scaling: RopeConfig) -> None:
    old, new = asdict(scaling), asdict(parameters)
    names = [name for name in old if old[name] != new[name]]
    if not names:
        return

    values = ", ".join(f"{name} ({quote(old[name])} and {quote(new[name])})" for name in names)
    raise fields.error(
        "rope_scaling",
        'must agree with "rope_parameters", the same settings in the format of transformers 5, '
        f"but they differ in {values}: remove one of them",
    )


def _parse_type(
    fields: Fields,
    scaling: Fields,
    head_dim: int,
    context: int,
    partial_rotary_factor: float | None,
    theta: float,
) -> RopeConfig:
    outer_theta = fields.number("rope_theta", fields.number("position_embedding_base", theta))
    plain = RopeConfig(
        theta=scaling.number("rope_theta", outer_theta),
        partial_rotary_factor=_partial_factor(fields, scaling, head_dim, partial_rotary_factor),
    )
    key = "rope_type" if "rope_type" in scaling else "type"
    rope_type = scaling.string(key, "default")
    match rope_type:
        case "default" | "mrope" if rope_type == "default" or "mrope_section" in scaling:
            return plain
        case "linear" | "proportional":
            default = None if rope_type == "linear" else 1.0
            return replace(plain, rope_type=rope_type, factor=scaling.number("factor", default))
        case "dynamic":
            _check_dynamic(fields, scaling, key, context)
            return plain
        case "llama3":
            return _parse_llama3(scaling, plain)
        # The first Phi 3 configs call longrope "su" or "yarn".
        case "su" | "yarn" | "longrope" if "long_factor" in scaling:
            return _parse_longrope(fields, scaling, plain, head_dim, context)
        case "yarn":
            return _parse_yarn(fields, scaling, plain)
        case "longrope":
            raise scaling.error(key, 'is "longrope", which requires "long_factor"')
        case _:
            allowed = ", ".join(map(quote, _ROPE_TYPES))
            raise scaling.error(key, f"must be one of {allowed}, got {quote(rope_type)}")


def _partial_factor(fields: Fields, scaling: Fields, head_dim: int, default: float | None) -> float:
    name = "partial_rotary_factor"
    owner = scaling if name in scaling else fields
    factor = owner.number(name, default or 1.0)
    if default is None and factor != 1.0:
        problem = f"must be 1.0, got {factor}: partial rotation is not supported for this model"
        raise owner.error(name, problem)

    if factor > 1.0 or int(head_dim * factor) < 2:
        problem = f"must rotate between 2 and all of {head_dim} dimensions, got {factor}"
        raise owner.error(name, problem)

    return factor


def _check_dynamic(fields: Fields, scaling: Fields, key: str, context: int) -> None:
    # Dynamic scaling changes nothing within the context that the model was trained for.
    trained = fields.integer("max_position_embeddings", context)
    if context > trained:
        problem = f'must not be "dynamic" for a context above max_position_embeddings ({trained})'
        raise scaling.error(key, f"{problem}, got {context}")


def _parse_llama3(scaling: Fields, plain: RopeConfig) -> RopeConfig:
    rope = replace(
        plain,
        rope_type="llama3",
        factor=scaling.number("factor"),
        low_freq_factor=scaling.number("low_freq_factor"),
        high_freq_factor=scaling.number("high_freq_factor"),
        original_context=scaling.integer("original_max_position_embeddings"),
    )
    if rope.high_freq_factor <= rope.low_freq_factor:
        problem = f"must be > low_freq_factor ({rope.low_freq_factor}), got {rope.high_freq_factor}"
        raise scaling.error("high_freq_factor", problem)

    return rope


def _parse_yarn(fields: Fields, scaling: Fields, plain: RopeConfig) -> RopeConfig:
    factor = scaling.number("factor")
    return replace(
        plain,
        rope_type="yarn",
        factor=factor,
        original_context=_original_context(fields, scaling, "max_position_embeddings"),
        attention_factor=_yarn_attention_factor(scaling, factor),
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        truncate=scaling.boolean("truncate", True),
    )


def _yarn_attention_factor(scaling: Fields, factor: float) -> float:
    if "attention_factor" in scaling:
        return scaling.number("attention_factor")

    def attention_factor(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if "mscale" in scaling and "mscale_all_dim" in scaling:
        numerator = attention_factor(scaling.number("mscale"))
        return numerator / attention_factor(scaling.number("mscale_all_dim"))

    return attention_factor(1.0)


def _parse_longrope(
    fields: Fields, scaling: Fields, plain: RopeConfig, head_dim: int, context: int
) -> RopeConfig:
    original = _original_context(fields, scaling)
    pairs = len(plain.inverse_frequencies(head_dim))
    return replace(
        plain,
        rope_type="longrope",
        original_context=original,
        attention_factor=_longrope_attention_factor(fields, scaling, original),
        short_factors=_pair_factors(scaling, "short_factor", pairs),
        long_factors=_pair_factors(scaling, "long_factor", pairs),
        uses_long_factors=context > original,
    )


def _longrope_attention_factor(fields: Fields, scaling: Fields, original: int) -> float:
    if "attention_factor" in scaling:
        return scaling.number("attention_factor")

    if "factor" in scaling:
        factor = scaling.number("factor")
    else:
        factor = _trained_context(fields, scaling) / original
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def _trained_context(fields: Fields, scaling: Fields) -> int:
    name = "max_position_embeddings"  # MLC also writes it into the scaling.
    return fields.integer(name) if name in fields else scaling.integer(name)


def _original_context(fields: Fields, scaling: Fields, fallback: str | None = None) -> int:
    name = "original_max_position_embeddings"
    if name in fields:
        return fields.integer(name)

    if name in scaling or fallback is None:
        return scaling.integer(name)

    return fields.integer(fallback)


def _pair_factors(scaling: Fields, name: str, pairs: int) -> tuple[float, ...]:
    factors = scaling.numbers(name)
    if len(factors) != pairs:
        problem = f"must have {pairs} numbers, one per rotated pair, got {len(factors)}"
        raise scaling.error(name, problem)

    return tuple(factors)
