"""Model architectures: their configs, parameters and graphs.

Importing this package does not import tvm; only the modules of `graph` do.
"""

from __future__ import annotations

from aiomlc.models.config.audio import AudioConfig
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.encoder import BlockEncoderConfig, EncoderConfig, EncoderNames
from aiomlc.models.config.layers import AttentionConfig, ExpertsConfig, LayerConfig, MlpConfig
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.config.speech import SpeechConfig
from aiomlc.models.config.tower import TowerConfig
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.description import (
    ModelDescription,
    describe_model,
    model_parameters,
    read_description,
    with_own_head,
)
from aiomlc.models.parameters.audio import audio_parameters
from aiomlc.models.parameters.decoder import decoder_parameters
from aiomlc.models.parameters.encoder import encoder_parameters
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.models.parameters.speech import speech_parameters
from aiomlc.models.parameters.vision import vision_parameters
from aiomlc.models.registry import MODEL_TYPES, AnyConfig, ModelConfig, supported_type

__all__ = (
    "MODEL_TYPES",
    "AnyConfig",
    "AttentionConfig",
    "AudioConfig",
    "BlockEncoderConfig",
    "DecoderConfig",
    "EncoderConfig",
    "EncoderNames",
    "ExpertsConfig",
    "LayerConfig",
    "MlpConfig",
    "ModelConfig",
    "ModelDescription",
    "Parameter",
    "RopeConfig",
    "SpeechConfig",
    "TowerConfig",
    "VisionConfig",
    "audio_parameters",
    "decoder_parameters",
    "describe_model",
    "encoder_parameters",
    "model_parameters",
    "read_description",
    "speech_parameters",
    "supported_type",
    "vision_parameters",
    "with_own_head",
)
