"""The function inside of a decoder's feed-forward layer."""

from __future__ import annotations

__all__ = ("Activation", "parse_activation")

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from aiomlc.models.config.fields import Fields

#: GELU is exact, or an approximation by tanh.
Activation = Literal["silu", "gelu", "gelu_tanh", "relu_square"]

_OF_GATES: Mapping[Activation, tuple[str, ...]] = MappingProxyType(
    {
        "silu": ("silu", "swish"),
        # The first Gemmas were published with "gelu", and meant this approximation.
        "gelu_tanh": ("gelu_pytorch_tanh", "gelu"),
    }
)
_OF_PLAIN_LAYERS: Mapping[str, Activation] = MappingProxyType(
    {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "relu2": "relu_square",
    }
)


def parse_activation(fields: Fields, default: Activation, *, gated: bool) -> Activation:
    """The function of a family's feed-forward layers; without a gate, the config may choose.

    Raises:
        ModelLoadError: the config names one that such layers do not have.
    """
    if gated:
        _check_gate(fields, _OF_GATES[default])
        return default

    if "hidden_act" not in fields:
        return default

    name = fields.text("hidden_act")
    if name not in _OF_PLAIN_LAYERS:
        raise fields.error("hidden_act", f"is {name!r}; supported: {', '.join(_OF_PLAIN_LAYERS)}")

    return _OF_PLAIN_LAYERS[name]


def _check_gate(fields: Fields, names: tuple[str, ...]) -> None:
    for field_name in ("hidden_act", "hidden_activation"):
        if (name := fields.text(field_name, names[0])) not in names:
            raise fields.error(field_name, f"is {name!r}; supported: {names[0]}")
