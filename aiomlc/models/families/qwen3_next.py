"""Qwen 3 Next: the layers of Qwen 3.5 MoE, with other tensors for the inputs of its delta nets.

The tensors of its heads for drafts (`mtp.*`) are not read.
"""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.families.qwen3_5 import parse_with_experts

_DENSE_SIZE = 5632  # Of transformers, for the layers without experts.


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_next`."""
    fields = fields.with_defaults(intermediate_size=_DENSE_SIZE)
    normalize = fields.boolean("norm_topk_prob", True)
    fused = ("in_proj_qkvz", "in_proj_ba")
    return parse_with_experts(fields, "qwen3_next", hf_fused=fused, normalize=normalize)
