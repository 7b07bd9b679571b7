"""The description of a model directory: its config, in whichever format it has."""

from __future__ import annotations

__all__ = (
    "ModelDescription",
    "describe_model",
    "model_parameters",
    "read_description",
    "with_own_head",
)

from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.config import config_fields
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.mmproj import find_mmproj, tower_fields, tower_qkv
from aiomlc.gguf.model import read_gguf
from aiomlc.models.config.audio import AudioConfig
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.encoder import BlockEncoderConfig, EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.output_head import has_own_head
from aiomlc.models.config.speech import SpeechConfig
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.embedders import as_encoder, with_prefix
from aiomlc.models.parameters.audio import audio_parameters
from aiomlc.models.parameters.decoder import decoder_parameters
from aiomlc.models.parameters.encoder import encoder_parameters
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.models.parameters.speech import speech_parameters
from aiomlc.models.parameters.tensor_names import hf_name
from aiomlc.models.parameters.vision import vision_parameters
from aiomlc.models.registry import (
    VISION_TYPES,
    WITH_IMAGES,
    AnyConfig,
    ModelConfig,
    Tower,
    parse_model,
    parse_tower,
)
from aiomlc.validation.model_files import load_errors
from aiomlc.validation.model_formats import describe_unsupported

# Families whose tower MLC's format has.
_MLC_VISION = ("llava",)
_CONTENTS = "a model's directory has one of them, a tokenizer and safetensors or MLC weights"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The model of a model directory."""

    config: ModelConfig
    path: Path  #: The config file.
    quantization: str | None  #: Of the weights of an MLC directory; None for Hugging Face.
    tower: Tower | None = None  #: Of a decoder that reads images or audio.


def model_parameters(config: AnyConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a model, under the graph's names (a matrix without `.weight`)."""
    match config:
        case DecoderConfig():
            return decoder_parameters(config)
        case EncoderConfig() | BlockEncoderConfig():
            return encoder_parameters(config)
        case VisionConfig():
            return vision_parameters(config)
        case AudioConfig():
            return audio_parameters(config)
        case SpeechConfig():
            return speech_parameters(config)


def read_description(model: Path) -> ModelDescription:
    """Return the description of a model directory or a GGUF file, as `describe_model`."""
    return describe_model(ConfigFiles(model))


def describe_model(files: ConfigFiles) -> ModelDescription:
    """Read `mlc-chat-config.json` or, if there is none, the `config.json` of Hugging Face.

    The metadata of a GGUF file has the same fields.

    Raises:
        ModelNotFoundError: If the directory has neither file.
        ModelLoadError: If the `model_type` is unknown or a field is invalid.
    """
    directory = files.model
    if files.is_gguf:
        return _read_gguf_description(files)

    path = files.path("mlc-chat-config.json")
    if (values := files.object(path.name)) is not None:
        fields = Fields(values, path)
        quantization = fields.string("quantization")
        inner = fields.flattened("model_config")
        config = parse_model(fields, inner)
        tower = parse_tower(inner) if inner.string("model_type") in _MLC_VISION else None
        return ModelDescription(_for_task(config, inner, files), path, quantization, tower)

    path = files.path("config.json")
    if (values := files.object(path.name)) is None:
        problem = f"{directory} has neither mlc-chat-config.json nor config.json"
        hint = describe_unsupported(directory) or _CONTENTS
        raise ModelNotFoundError(f"{problem}: {hint}", path=directory)

    fields = Fields(values, path)
    parsed = parse_model(fields, fields)
    tower = parse_tower(fields)
    config = with_own_head(parsed, directory, tower)
    return ModelDescription(_for_task(config, fields, files), path, None, tower)


def _for_task(config: ModelConfig, fields: Fields, files: ConfigFiles) -> ModelConfig:
    with load_errors(fields.path):
        match config:
            case DecoderConfig():
                return as_encoder(config, fields, files)
            case EncoderConfig() if config.classifier is None:
                return with_prefix(config, files.model)
            case BlockEncoderConfig() if config.classifier is None and config.hf_prefix:
                return with_prefix(config, files.model)
            case _:
                return config


def with_own_head(config: ModelConfig, directory: Path, tower: Tower | None = None) -> ModelConfig:
    """Return the configuration of a Hugging Face directory as its tensors have it.

    As in transformers, an output head that differs from the embedding is not tied to it.
    """
    if not isinstance(config, DecoderConfig) or not config.tie_word_embeddings:
        return config

    embedding = hf_name(config.model_type, "model.embed_tokens")
    head = hf_name(config.model_type, "lm_head")
    renamed = str if tower is None else tower.renamed
    is_tied = not has_own_head(directory, embedding, head, renamed)
    return replace(config, tie_word_embeddings=is_tied)


def _read_gguf_description(files: ConfigFiles) -> ModelDescription:
    path = files.model
    with load_errors(path):
        config = config_fields(read_gguf(path))
    fields = Fields(config.values, path, names=config.names, tensors=config.tensors)
    model = parse_model(fields, fields)
    if isinstance(model, EncoderConfig):
        return ModelDescription(_encoder_in_gguf(model, read_gguf(path).tensors), path, None)

    assert isinstance(model, DecoderConfig), "encoders of blocks are not among the architectures"
    layout = model.checkpoint.in_gguf(model.model_type)
    model = replace(model, checkpoint=layout)
    vision = _read_mmproj(path, model)
    if vision is not None and model.model_type in WITH_IMAGES:
        with load_errors(path):
            model = WITH_IMAGES[model.model_type](fields, model)
    return ModelDescription(as_encoder(model, fields, files), path, None, vision)


def _read_mmproj(path: Path, model: DecoderConfig) -> VisionConfig | None:
    """Return the tower in the file beside a GGUF file, if there is one."""
    with load_errors(path):
        tower = find_mmproj(path)
        if tower is None:
            return None

        fields = Fields(tower_fields(tower, model.hidden_size), tower.path)
        vision = VISION_TYPES[fields.string("model_type")](fields)
        if vision is not None and vision.embedded_size != model.embedded_row_size:
            raise ModelLoadError(
                f"{tower.path}: its rows have {vision.embedded_size} numbers, and those of "
                f"{path.name} have {model.embedded_row_size}: download the file of the same model",
                path=tower.path,
            )

        return None if vision is None else vision.in_gguf(tower_qkv(tower))


def _encoder_in_gguf(config: EncoderConfig, tensors: Container[str]) -> EncoderConfig:
    """Return the config with the names that the tensors have in a GGUF file."""
    parts = ("attn_qkv",) if "blk.0.attn_qkv.weight" in tensors else ("attn_q", "attn_k", "attn_v")
    names = EncoderNames(
        words="token_embd",
        positions="position_embd",
        token_types="token_types",
        norm="token_embd_norm",
        layer="blk.{}.",
        qkv=parts,
        attention_output="attn_output",
        attention_norm="attn_output_norm",
        up=("ffn_gate", "ffn_up") if "blk.0.ffn_gate.weight" in tensors else ("ffn_up",),
        down="ffn_down",
        output_norm="layer_output_norm",
    )
    classifier = config.classifier
    if classifier is not None:
        has_dense = "cls.output.weight" in tensors
        dense, output = ("cls", "cls.output") if has_dense else ("", "cls")
        classifier = replace(classifier, dense=dense, output=output)
    return replace(config, names=names, hf_prefix="", classifier=classifier)
