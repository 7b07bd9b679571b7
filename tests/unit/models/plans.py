"""Parts of the plans of a decoder's layers."""

from __future__ import annotations

__all__ = ("experts_of", "mlp_of", "rope_of", "ropes_of")

from aiomlc.models import DecoderConfig, ExpertsConfig, MlpConfig, RopeConfig


def ropes_of(config: DecoderConfig) -> tuple[RopeConfig | None, ...]:
    """Return the RoPE of each layer."""
    return tuple(attention.rope for attention in config.attention)


def rope_of(config: DecoderConfig) -> RopeConfig:
    """Return the RoPE that all layers have."""
    (rope,) = set(ropes_of(config))
    assert rope is not None
    return rope


def mlp_of(config: DecoderConfig) -> MlpConfig:
    """Return the feed-forward layer that all layers have."""
    (mlp,) = {layer.feed_forward for layer in config.layers}
    assert isinstance(mlp, MlpConfig)
    return mlp


def experts_of(config: DecoderConfig) -> tuple[ExpertsConfig, list[int]]:
    """Return the mixture of experts, and the layers that do not have it."""
    feed_forwards = [layer.feed_forward for layer in config.layers]
    (experts,) = {each for each in feed_forwards if isinstance(each, ExpertsConfig)}
    return experts, [i for i, each in enumerate(feed_forwards) if each != experts]
