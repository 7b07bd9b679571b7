"""The RoPE fields of a config: base, partial rotation and scaling."""

from __future__ import annotations

__all__ = ("rope_fields", "scaling_type")

import math
from typing import Any

from aiomlc.gguf.model import GGUFModel
from aiomlc.validation.json_values import safe_repr

_DIMENSIONS = "rope.dimension_count"
_THETA = "rope.freq_base"
_DEFAULT_THETA = 10000.0
_TYPE = "rope.scaling.type"
_FACTOR = "rope.scaling.factor"
_ORIGINAL = "rope.scaling.original_context_length"
_ATTENTION = "rope.scaling.attn_factor"
_YARN_ATTENTION = "rope.scaling.yarn_attn_factor"
_OLD_LINEAR = "rope.scale_linear"
_SECTIONS = "rope.dimension_sections"
_BETAS = {"beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow"}
_TYPES = ("none", "linear", "yarn", "longrope")
_NAMES = {
    "rope_theta": _THETA,
    "partial_rotary_factor": _DIMENSIONS,
    "rope_scaling.rope_type": _TYPE,
    "rope_scaling.factor": _FACTOR,
    "rope_scaling.original_max_position_embeddings": _ORIGINAL,
    "rope_scaling.attention_factor": _ATTENTION,
    "rope_scaling.mrope_section": _SECTIONS,
    **{f"rope_scaling.{name}": suffix for name, suffix in _BETAS.items()},
}
#: Divisors of the frequencies, one per rotated pair: of every length, or by length.
_DIVISORS = "rope_freqs.weight"
_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"


def rope_fields(
    model: GGUFModel, head_dim: int, context: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the RoPE fields of a config, and what the file calls them.

    Raises:
        ModelLoadError: If a key or tensor is invalid.
    """
    metadata = model.metadata
    fields: dict[str, Any] = {
        "rope_theta": metadata.number(model.key(_THETA), _DEFAULT_THETA),
        "partial_rotary_factor": _partial_factor(model, head_dim),
        "rope_scaling": _with_sections(model, _scaling(model, context)),
    }
    names = {field: model.key(suffix) for field, suffix in _NAMES.items()}
    names |= {"rope_scaling.short_factor": _SHORT, "rope_scaling.long_factor": _LONG}
    if _DIVISORS in model.tensors:
        names |= {"rope_scaling.short_factor": _DIVISORS, "rope_scaling.long_factor": _DIVISORS}
    return fields, names


def _with_sections(model: GGUFModel, scaling: dict[str, Any] | None) -> dict[str, Any] | None:
    """Add the pairs of each axis to a scaling: of time, height, width, and one that is not used."""
    key = model.key(_SECTIONS)
    if not (sections := model.metadata.integers(key)):
        return scaling

    if any(sections[3:]):
        raise model.metadata.error(key, f"must be 0 after three integers, got {sections}")

    return {"rope_type": "default", **(scaling or {}), "mrope_section": sections[:3]}


def _partial_factor(model: GGUFModel, head_dim: int) -> float:
    rotated = model.metadata.integer(model.key(_DIMENSIONS), head_dim)
    if not 2 <= rotated <= head_dim:
        problem = f"must be between 2 and the head size ({head_dim}), got {rotated}"
        raise model.metadata.error(model.key(_DIMENSIONS), problem)

    factor = rotated / head_dim
    # The reader of configs rounds the product down.
    return factor if int(head_dim * factor) == rotated else math.nextafter(factor, 1.0)


def scaling_type(model: GGUFModel) -> str:
    """Return how RoPE is scaled; as in llama.cpp, a factor without a type is linear.

    Raises:
        ModelLoadError: If a key is invalid.
    """
    is_scaled = any(model.key(suffix) in model.metadata for suffix in (_FACTOR, _OLD_LINEAR))
    default = "linear" if is_scaled and _factor(model) not in (0.0, 1.0) else "none"
    return model.metadata.string(model.key(_TYPE), default)


def _factor(model: GGUFModel) -> float:
    old = model.key(_OLD_LINEAR)
    default = model.metadata.number(old) if old in model.metadata else None
    return model.metadata.number(model.key(_FACTOR), default)


def _scaling(model: GGUFModel, context: int) -> dict[str, Any] | None:
    metadata = model.metadata
    if (divisors := model.vector(_DIVISORS)) is not None:
        # llama.cpp's converter stores llama3's scaled frequencies, not its parameters.
        return {
            "rope_type": "longrope",
            "short_factor": divisors,
            "long_factor": divisors,
            "attention_factor": 1.0,
            "original_max_position_embeddings": context,
        }

    if _LONG in model.tensors or _SHORT in model.tensors:
        return _longrope(model)

    key, kind = model.key(_TYPE), scaling_type(model)
    match kind:
        case "none":
            return None
        case "linear":
            return {"rope_type": "linear", "factor": _factor(model)}
        case "yarn":
            return _yarn(model)
        case "longrope":
            raise metadata.error(
                key, f"is 'longrope', which requires the tensors {_LONG} and {_SHORT}"
            )
        case _:
            problem = f"must be one of {', '.join(_TYPES)}, got {safe_repr(kind)}"
            raise metadata.error(key, problem)


def _longrope(model: GGUFModel) -> dict[str, Any]:
    metadata = model.metadata
    fields: dict[str, Any] = {
        "rope_type": "longrope",
        "short_factor": model.vector(_SHORT),
        "long_factor": model.vector(_LONG),
        "original_max_position_embeddings": metadata.integer(model.key(_ORIGINAL)),
    }
    if (key := model.key(_ATTENTION)) in metadata:
        fields["attention_factor"] = metadata.number(key)
    return fields


def _yarn(model: GGUFModel) -> dict[str, Any]:
    metadata = model.metadata
    factor = metadata.number(model.key(_FACTOR))
    fields: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": metadata.integer(model.key(_ORIGINAL)),
    }
    fields |= {
        name: metadata.number(model.key(suffix))
        for name, suffix in _BETAS.items()
        if model.key(suffix) in metadata
    }
    if (key := model.key(_ATTENTION)) in metadata:  # llama.cpp multiplies YaRN's own factor by it.
        fields["attention_factor"] = metadata.number(key) * (0.1 * math.log(factor) + 1.0)
    elif (key := model.key(_YARN_ATTENTION)) in metadata:  # The config's, of llama.cpp's converter.
        fields["attention_factor"] = metadata.number(key)
    return fields
