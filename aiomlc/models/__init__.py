"""Model architectures: what a config means, which weights it needs, and the graph it stands for.

Nothing that is imported here imports tvm; only `decoder`, `encoder`, `layers` and `module` do.
"""

from __future__ import annotations

from aiomlc.models.config import DecoderConfig
from aiomlc.models.encoder_config import EncoderConfig, encoder_parameters
from aiomlc.models.experts import ExpertsConfig
from aiomlc.models.parameter import Parameter
from aiomlc.models.registry import MODEL_TYPES, ModelConfig, ModelDescription, read_description
from aiomlc.models.rope import RopeConfig
from aiomlc.models.weight_map import decoder_parameters

__all__ = (
    "MODEL_TYPES",
    "DecoderConfig",
    "EncoderConfig",
    "ExpertsConfig",
    "ModelConfig",
    "ModelDescription",
    "Parameter",
    "RopeConfig",
    "decoder_parameters",
    "encoder_parameters",
    "read_description",
)
