"""Model architectures: their configs, parameters and graphs.

Importing this package does not import tvm; only the modules of `graph` do.
"""

from __future__ import annotations

from aiomlc.models.config.decoder import DecoderConfig, DecoderTraits
from aiomlc.models.config.encoder import EncoderConfig
from aiomlc.models.config.moe import ExpertsConfig
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.parameters.decoder import decoder_parameters
from aiomlc.models.parameters.encoder import encoder_parameters
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.models.registry import (
    MODEL_TYPES,
    ModelConfig,
    ModelDescription,
    describe_model,
    read_description,
    with_own_head,
)

__all__ = (
    "MODEL_TYPES",
    "DecoderConfig",
    "DecoderTraits",
    "EncoderConfig",
    "ExpertsConfig",
    "ModelConfig",
    "ModelDescription",
    "Parameter",
    "RopeConfig",
    "decoder_parameters",
    "describe_model",
    "encoder_parameters",
    "read_description",
    "with_own_head",
)
