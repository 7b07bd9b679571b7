"""Activation functions of a decoder's feed-forward layers."""

from __future__ import annotations

__all__ = ("Activation", "ExpertActivation", "parse_activation")

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from aiomlc.models.config.fields import Fields, quote

#: `gelu` is the exact function, `gelu_tanh` its tanh approximation, and `quick_gelu` CLIP's:
#: `x * sigmoid(1.702 * x)`.
Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu", "squared_relu"]
#: `silu` is `silu(gate) * up`, and `gelu_tanh` the same with GELU. `clamped_swiglu` is
#: `gate * sigmoid(1.702 * gate) * (up + 1)`, where `gate` is at most 7, and `up` between -7 and 7.
ExpertActivation = Literal["silu", "gelu_tanh", "clamped_swiglu"]

_GATED_NAMES: Mapping[Activation, tuple[str, ...]] = MappingProxyType(
    {
        "silu": ("silu", "swish"),
        "gelu": ("gelu",),
        # The first Gemma configs contain "gelu" although the models use the approximation.
        "gelu_tanh": ("gelu_pytorch_tanh", "gelu"),
    }
)
_UNGATED_NAMES: Mapping[str, Activation] = MappingProxyType(
    {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "quick_gelu": "quick_gelu",
        "relu2": "squared_relu",
    }
)


def parse_activation(fields: Fields, default: Activation, *, gated: bool) -> Activation:
    """Return the activation of the feed-forward layers.

    A gated layer always has the family's `default`; without a gate, the config may choose.

    Raises:
        ModelLoadError: If the config names an activation that such layers do not support.
    """
    if gated:
        _check_gate(fields, _GATED_NAMES[default])
        return default

    if "hidden_act" not in fields:
        return default

    return _UNGATED_NAMES[fields.choice("hidden_act", tuple(_UNGATED_NAMES))]


def _check_gate(fields: Fields, names: tuple[str, ...]) -> None:
    for field_name in ("hidden_act", "hidden_activation"):
        if (name := fields.string(field_name, names[0])) not in names:
            raise fields.error(field_name, f"must be {quote(names[0])}, got {quote(name)}")
