"""The parameters of an audio tower."""

from __future__ import annotations

__all__ = ("audio_parameters",)

from collections.abc import Iterator
from dataclasses import replace

from aiomlc.models.config.audio import CONV_TAPS, AudioConfig
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.models.parameters.tower import linear, matrix, projector_steps, tower_layers


def audio_parameters(config: AudioConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a tower and its projector, under the graph's names."""
    steps = projector_steps("projector", config.projector)
    return (*_convolutions(config), *tower_layers(config), *steps)


def _convolutions(config: AudioConfig) -> Iterator[Parameter]:
    channels, source = config.conv_channels, config.names.patch
    for index, inputs in enumerate((1, channels, channels), 1):
        shape = (channels, CONV_TAPS * inputs)
        for parameter in linear(f"conv{index}", (f"{source}.conv2d{index}",), shape, bias=True):
            is_small = index == 1 and parameter.kind == "matrix"
            yield replace(parameter, keep_float32=is_small)
    shape = (config.hidden_size, config.conv_bands[-1] * channels)
    yield matrix("conv_out", (f"{source}.conv_out.weight",), *shape)
