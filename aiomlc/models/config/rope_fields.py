"""The settings of rotary position embedding, as configs write them."""

from __future__ import annotations

__all__ = ("parse_rope",)

import math
from dataclasses import replace

from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import DEFAULT_THETA, RopeConfig

_KINDS = "default, linear, dynamic, llama3, yarn, longrope"


def parse_rope(
    fields: Fields,
    *,
    head_dim: int,
    context: int,
    share: float | None = None,
    theta: float = DEFAULT_THETA,
) -> RopeConfig:
    """Read the settings as transformers 5 writes them, as its forerunners did, or as MLC does.

    Args:
        fields: A model's config.
        head_dim: Dimensions of a head.
        context: Tokens of the longest sequence.
        share: Of a head's dimensions that turn, where the config names none; None for a family
            whose heads turn as a whole.
        theta: The base, where the config names none.

    Raises:
        ModelLoadError: a field is missing, of a wrong type, or asks for what is not supported.
    """
    name = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
    scaling = fields.nested(name)
    outer_theta = fields.number("rope_theta", fields.number("position_embedding_base", theta))
    plain = RopeConfig(
        theta=scaling.number("rope_theta", outer_theta),
        share=_share(fields, scaling, head_dim, share),
    )
    key = "rope_type" if "rope_type" in scaling else "type"
    kind = scaling.text(key, "default")
    match kind:
        case "default":
            return plain
        case "linear":
            return replace(plain, rope_type=kind, factor=scaling.number("factor"))
        case "dynamic":
            _check_dynamic(fields, scaling, key, context)
            return plain
        case "llama3":
            return _parse_llama3(scaling, plain)
        # Phi's first configs call it so.
        case "su" | "yarn" | "longrope" if "long_factor" in scaling:
            return _parse_longrope(fields, scaling, plain, head_dim, context)
        case "yarn":
            return _parse_yarn(fields, scaling, plain)
        case _:
            raise scaling.error(key, f"is {kind!r}; supported: {_KINDS}")


def _share(fields: Fields, scaling: Fields, head_dim: int, default: float | None) -> float:
    name = "partial_rotary_factor"
    place = scaling if name in scaling else fields
    share = place.number(name, default or 1.0)
    if default is None and share != 1.0:
        raise place.error(name, "is not 1.0, which is not supported")

    if share > 1.0 or int(head_dim * share) < 2:
        raise place.error(name, f"is {share} of {head_dim} dimensions")

    return share


def _check_dynamic(fields: Fields, scaling: Fields, key: str, context: int) -> None:
    # It changes nothing before the context that the model was trained for ends.
    if context > fields.integer("max_position_embeddings", context):
        raise scaling.error(key, "is 'dynamic', beyond max_position_embeddings")


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
        raise scaling.error("high_freq_factor", "is not above low_freq_factor")

    return rope


def _parse_yarn(fields: Fields, scaling: Fields, plain: RopeConfig) -> RopeConfig:
    factor = scaling.number("factor")
    return replace(
        plain,
        rope_type="yarn",
        factor=factor,
        original_context=_original_context(fields, scaling, "max_position_embeddings"),
        amplitude=_yarn_amplitude(scaling, factor),
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        truncate=scaling.boolean("truncate", True),
    )


def _yarn_amplitude(scaling: Fields, factor: float) -> float:
    if "attention_factor" in scaling:
        return scaling.number("attention_factor")

    def grown(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if "mscale" in scaling and "mscale_all_dim" in scaling:
        return grown(scaling.number("mscale")) / grown(scaling.number("mscale_all_dim"))

    return grown(1.0)


def _parse_longrope(
    fields: Fields, scaling: Fields, plain: RopeConfig, head_dim: int, context: int
) -> RopeConfig:
    original = _original_context(fields, scaling)
    pairs = len(plain.inverse_frequencies(head_dim))
    return replace(
        plain,
        rope_type="longrope",
        original_context=original,
        amplitude=_longrope_amplitude(fields, scaling, original),
        short_factors=_pair_factors(scaling, "short_factor", pairs),
        long_factors=_pair_factors(scaling, "long_factor", pairs),
        is_long=context > original,
    )


def _longrope_amplitude(fields: Fields, scaling: Fields, original: int) -> float:
    if "attention_factor" in scaling:
        return scaling.number("attention_factor")

    if "factor" in scaling:
        factor = scaling.number("factor")
    else:
        factor = _trained_context(fields, scaling) / original
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def _trained_context(fields: Fields, scaling: Fields) -> int:
    name = "max_position_embeddings"  # MLC writes it into the scaling, too.
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
        raise scaling.error(name, f"has {len(factors)} numbers for {pairs} pairs of dimensions")

    return tuple(factors)
