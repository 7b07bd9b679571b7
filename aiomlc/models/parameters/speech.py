"""The parameters of a model that transcribes speech."""

from __future__ import annotations

__all__ = ("speech_parameters",)

from collections.abc import Iterator

from aiomlc.models.config.speech import SpeechConfig, SpeechStackConfig
from aiomlc.models.parameters.parameter import Parameter

_TAPS = 3  # Frames of a convolution.


def speech_parameters(config: SpeechConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a model, under the graph's names."""
    return (*_encoder(config), *_decoder(config))


def _encoder(config: SpeechConfig) -> Iterator[Parameter]:
    hidden, source = config.hidden_size, "model.encoder"
    for index, inputs in enumerate((config.num_mels, hidden), 1):
        # A convolution is a matrix product of the frames that it reads.
        shape = (hidden, _TAPS * inputs)
        yield from _linear(f"encoder.conv{index}", f"{source}.conv{index}", shape)
    yield _table("encoder.positions", source, config.encoder, hidden)
    for layer in range(config.encoder.num_layers):
        name, own = f"encoder.layers.{layer}", f"{source}.layers.{layer}"
        yield from _attention(f"{name}.attention", f"{own}.self_attn", hidden)
        yield from _feed_forward(name, own, config.encoder, hidden)
    yield from _norm("encoder.norm", f"{source}.layer_norm", hidden)


def _decoder(config: SpeechConfig) -> Iterator[Parameter]:
    hidden, source = config.hidden_size, "model.decoder"
    shape = (config.vocab_size, hidden)
    yield Parameter("decoder.tokens", "matrix", shape, (f"{source}.embed_tokens.weight",))
    yield _table("decoder.positions", source, config.decoder, hidden)
    for layer in range(config.decoder.num_layers):
        name, own = f"decoder.layers.{layer}", f"{source}.layers.{layer}"
        yield from _attention(f"{name}.attention", f"{own}.self_attn", hidden)
        yield from _attention(f"{name}.cross_attention", f"{own}.encoder_attn", hidden)
        yield from _feed_forward(name, own, config.decoder, hidden)
    yield from _norm("decoder.norm", f"{source}.layer_norm", hidden)


def _attention(name: str, source: str, hidden: int) -> Iterator[Parameter]:
    yield from _norm(f"{name}.norm", f"{source}_layer_norm", hidden)
    for part, own in (("q", "q_proj"), ("v", "v_proj"), ("output", "out_proj")):
        yield from _linear(f"{name}.{part}", f"{source}.{own}", (hidden, hidden))
    yield Parameter(f"{name}.k", "matrix", (hidden, hidden), (f"{source}.k_proj.weight",))


def _feed_forward(
    name: str, source: str, stack: SpeechStackConfig, hidden: int
) -> Iterator[Parameter]:
    inner = stack.intermediate_size
    yield from _norm(f"{name}.norm", f"{source}.final_layer_norm", hidden)
    yield from _linear(f"{name}.up", f"{source}.fc1", (inner, hidden))
    yield from _linear(f"{name}.down", f"{source}.fc2", (hidden, inner))


def _table(name: str, source: str, stack: SpeechStackConfig, hidden: int) -> Parameter:
    shape = (stack.num_positions, hidden)
    return Parameter(name, "matrix", shape, (f"{source}.embed_positions.weight",))


def _linear(name: str, source: str, shape: tuple[int, int]) -> Iterator[Parameter]:
    yield Parameter(name, "matrix", shape, (f"{source}.weight",))
    yield Parameter(f"{name}.bias", "vector", shape[:1], (f"{source}.bias",))


def _norm(name: str, source: str, size: int) -> Iterator[Parameter]:
    for kind in ("weight", "bias"):
        yield Parameter(f"{name}.{kind}", "vector", (size,), (f"{source}.{kind}",))
