"""The fields of RoPE with positions in time, height and width (M-RoPE, arXiv:2409.12191)."""

from __future__ import annotations

__all__ = ("with_sections",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import AttentionConfig


def with_sections(
    fields: Fields, config: DecoderConfig, default: tuple[int, ...], *, interleaved: bool
) -> DecoderConfig:
    """Return a decoder whose RoPE positions have a time, a height and a width (M-RoPE).

    Args:
        fields: The decoder's config.
        config: The decoder.
        default: The frequencies of each axis if the config omits them.
        interleaved: Whether the axes alternate.

    Raises:
        ModelLoadError: If the config has sections that are not three, or are not those of a head.
    """
    name = "rope_parameters"
    settings = fields.nested(name if fields.nested(name).names() else "rope_scaling")

    def changed(plan: AttentionConfig) -> AttentionConfig:
        if plan.rope is None:
            return plan

        sections = default
        if "mrope_section" in settings:
            sections = _parse_sections(settings, len(plan.rope.inverse_frequencies(plan.head_dim)))
        rope = replace(plan.rope, sections=sections, interleaves_sections=interleaved)
        return replace(plan, rope=rope)

    return config.map_attention(changed)


def _parse_sections(settings: Fields, pairs: int) -> tuple[int, ...]:
    sections = settings.integers("mrope_section")
    if len(sections) != 3 or sum(sections) != pairs or min(sections) < 0:
        problem = f"must have 3 integers with the sum {pairs}, one per rotated pair, got {sections}"
        raise settings.error("mrope_section", problem)

    return tuple(sections)
