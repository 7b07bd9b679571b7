"""The supported model types, and the description of a model directory."""

from __future__ import annotations

__all__ = (
    "MODEL_TYPES",
    "AnyConfig",
    "ModelConfig",
    "ModelDescription",
    "describe_model",
    "model_parameters",
    "read_description",
    "supported_type",
    "with_own_head",
)

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.config import config_fields
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.mmproj import find_mmproj, tower_fields, tower_qkv
from aiomlc.gguf.model import read_gguf
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.encoder import BlockEncoderConfig, EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields, quote
from aiomlc.models.config.output_head import has_own_head
from aiomlc.models.config.speech import SpeechConfig
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.embedders import as_encoder, with_prefix
from aiomlc.models.families import (
    bert,
    cohere,
    distilbert,
    ernie4_5,
    eurobert,
    exaone4,
    gemma,
    gemma2,
    gemma3,
    gemma3n,
    gemma4,
    glm,
    gpt_neox,
    gpt_oss,
    granite,
    granite_hybrid,
    gte,
    helium,
    idefics3,
    internlm3,
    internvl,
    jina_bert,
    jina_embeddings_v3,
    lfm2,
    llama,
    llava,
    llava_next,
    mistral,
    mistral3,
    mixtral,
    modernbert,
    mpnet,
    nemotron,
    nomic_bert,
    olmo2,
    olmo3,
    olmoe,
    phi,
    phi3,
    qwen2,
    qwen2_5_vl,
    qwen2_moe,
    qwen3,
    qwen3_5,
    qwen3_moe,
    qwen3_next,
    qwen3_vl,
    qwen_towers,
    seed_oss,
    smollm3,
    stablelm,
    starcoder2,
    whisper,
)
from aiomlc.models.families.vision_towers import text_fields
from aiomlc.models.parameters.decoder import decoder_parameters
from aiomlc.models.parameters.encoder import encoder_parameters
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.models.parameters.speech import speech_parameters
from aiomlc.models.parameters.tensor_names import hf_name
from aiomlc.models.parameters.vision import vision_parameters
from aiomlc.validation.model_files import load_errors
from aiomlc.validation.model_formats import describe_unsupported

ModelConfig = DecoderConfig | EncoderConfig | BlockEncoderConfig | SpeechConfig
#: The config of anything that is compiled to a library: a tower is a part of a model.
AnyConfig = ModelConfig | VisionConfig

MODEL_TYPES: Mapping[str, Callable[[Fields], ModelConfig]] = MappingProxyType(
    {
        "bert": lambda fields: _parse_bert(fields),
        "bert-bge": bert.parse,  # MLC LLM's name for checkpoints with unused tensors.
        "camembert": bert.parse_camembert,
        "cohere": cohere.parse,
        "distilbert": distilbert.parse,
        "electra": bert.parse_electra,
        "ernie4_5": ernie4_5.parse,
        "eurobert": eurobert.parse,
        "exaone4": exaone4.parse,
        "gemma": gemma.parse,
        "gemma2": gemma2.parse,
        "gemma3": gemma3.parse,
        "gemma3_text": gemma3.parse_text,
        "gemma3n": gemma3n.parse,
        "gemma3n_text": gemma3n.parse_text,
        "gemma4": gemma4.parse,
        "gemma4_text": gemma4.parse_text,
        "gemma4_unified": gemma4.parse_unified,
        "gemma4_unified_text": gemma4.parse_unified_text,
        "glm": glm.parse,
        "glm4": glm.parse_glm4,
        "gpt_neox": gpt_neox.parse,
        "gpt_oss": gpt_oss.parse,
        "granite": granite.parse,
        "granitemoehybrid": granite_hybrid.parse,
        "gte": gte.parse,
        "helium": helium.parse,
        "idefics3": lambda fields: _parse_text(text_fields(fields)),
        "internlm3": internlm3.parse,
        "internvl": lambda fields: _parse_text(text_fields(fields, "qwen2")),
        "jina_embeddings_v3": jina_embeddings_v3.parse,
        "lfm2": lfm2.parse,
        "lfm2_moe": lfm2.parse_moe,
        "llama": llama.parse,
        "llava": lambda fields: _parse_text(text_fields(fields)),
        "llava_next": lambda fields: _parse_text(text_fields(fields)),
        "mistral": mistral.parse,
        "mistral3": lambda fields: _parse_text(mistral3.text_fields(fields)),
        "mixtral": mixtral.parse,
        "modernbert": modernbert.parse,
        "mpnet": mpnet.parse,
        "nemotron": nemotron.parse,
        "new": gte.parse,
        "nomic_bert": nomic_bert.parse,
        "olmo2": olmo2.parse,
        "olmo3": olmo3.parse,
        "olmoe": olmoe.parse,
        "phi": phi.parse,
        "phi3": phi3.parse,
        "qwen2": qwen2.parse,
        "qwen2_5_vl": qwen2_5_vl.parse,
        "qwen2_moe": qwen2_moe.parse,
        "qwen2_vl": qwen2_5_vl.parse_qwen2_vl,
        "qwen3": qwen3.parse,
        "qwen3_5": qwen3_5.parse,
        "qwen3_5_moe": qwen3_5.parse_moe,
        "qwen3_5_moe_text": qwen3_5.parse_moe_text,
        "qwen3_5_text": qwen3_5.parse_text,
        "qwen3_moe": qwen3_moe.parse,
        "qwen3_next": qwen3_next.parse,
        "qwen3_vl": qwen3_vl.parse,
        "qwen3_vl_moe": qwen3_vl.parse_moe,
        "roberta": bert.parse_roberta,
        "seed_oss": seed_oss.parse,
        "smollm3": smollm3.parse,
        "smolvlm": lambda fields: _parse_text(text_fields(fields)),
        "stablelm": stablelm.parse,
        "starcoder2": starcoder2.parse,
        "whisper": whisper.parse,
        "xlm-roberta": bert.parse_xlm_roberta,
    }
)

#: Model types that read images, and the readers of their towers' configs.
VISION_TYPES: Mapping[str, Callable[[Fields], VisionConfig | None]] = MappingProxyType(
    {
        "gemma3": gemma3.parse_vision,
        "gemma4": gemma4.parse_vision,
        "idefics3": idefics3.parse_vision,
        "internvl": internvl.parse_vision,
        "llava": llava.parse_vision,
        "llava_next": llava_next.parse_vision,
        "mistral3": mistral3.parse_vision,
        "qwen2_5_vl": qwen_towers.parse_qwen2_5_vl,
        "qwen2_vl": qwen_towers.parse_qwen2_vl,
        "qwen3_5": qwen_towers.parse_qwen3_5,
        "qwen3_5_moe": qwen_towers.parse_qwen3_5,
        "qwen3_vl": qwen_towers.parse_qwen3_vl,
        "qwen3_vl_moe": qwen_towers.parse_qwen3_vl,
        "smolvlm": idefics3.parse_smolvlm_vision,
    }
)


# What images change in decoders whose GGUF files are those of text.
_WITH_IMAGES: Mapping[str, Callable[[Fields, DecoderConfig], DecoderConfig]] = MappingProxyType(
    {
        "gemma3_text": lambda _, config: config.with_attention(sees_whole_pieces=True),
        "qwen3_5_moe_text": qwen3_5.with_image_positions,
        "qwen3_5_text": qwen3_5.with_image_positions,
    }
)
# Families whose tower MLC's format has.
_MLC_VISION = ("llava",)
_CONTENTS = "a model's directory has one of them, a tokenizer and safetensors or MLC weights"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The model of a model directory."""

    config: ModelConfig
    path: Path  #: The config file.
    quantization: str | None  #: Of the weights of an MLC directory; None for Hugging Face.
    vision: VisionConfig | None = None  #: The tower of a decoder that reads images.


def model_parameters(config: AnyConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a model, under the graph's names (a matrix without `.weight`)."""
    match config:
        case DecoderConfig():
            return decoder_parameters(config)
        case EncoderConfig() | BlockEncoderConfig():
            return encoder_parameters(config)
        case VisionConfig():
            return vision_parameters(config)
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
        config = _parse(fields, inner)
        vision = _parse_vision(inner) if inner.string("model_type") in _MLC_VISION else None
        return ModelDescription(_for_task(config, inner, files), path, quantization, vision)

    path = files.path("config.json")
    if (values := files.object(path.name)) is None:
        problem = f"{directory} has neither mlc-chat-config.json nor config.json"
        hint = describe_unsupported(directory) or _CONTENTS
        raise ModelNotFoundError(f"{problem}: {hint}", path=directory)

    fields = Fields(values, path)
    parsed = _parse(fields, fields)
    vision = _parse_vision(fields)
    config = with_own_head(parsed, directory, vision)
    return ModelDescription(_for_task(config, fields, files), path, None, vision)


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


def with_own_head(
    config: ModelConfig, directory: Path, vision: VisionConfig | None = None
) -> ModelConfig:
    """Return the configuration of a Hugging Face directory as its tensors have it.

    As in transformers, an output head that differs from the embedding is not tied to it.
    """
    if not isinstance(config, DecoderConfig) or not config.tie_word_embeddings:
        return config

    embedding = hf_name(config.model_type, "model.embed_tokens")
    head = hf_name(config.model_type, "lm_head")
    renamed = str if vision is None else vision.renamed
    is_tied = not has_own_head(directory, embedding, head, renamed)
    return replace(config, tie_word_embeddings=is_tied)


def _read_gguf_description(files: ConfigFiles) -> ModelDescription:
    path = files.model
    with load_errors(path):
        config = config_fields(read_gguf(path))
    fields = Fields(config.values, path, names=config.names, tensors=config.tensors)
    model = _parse(fields, fields)
    if isinstance(model, EncoderConfig):
        return ModelDescription(_encoder_in_gguf(model, read_gguf(path).tensors), path, None)

    assert isinstance(model, DecoderConfig), "encoders of blocks are not among the architectures"
    layout = model.checkpoint.in_gguf(model.model_type)
    model = replace(model, checkpoint=layout)
    vision = _read_mmproj(path, model)
    if vision is not None and model.model_type in _WITH_IMAGES:
        with load_errors(path):
            model = _WITH_IMAGES[model.model_type](fields, model)
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


def _parse(fields: Fields, config: Fields) -> ModelConfig:
    """Parse `config` as the model type that `fields` names."""
    with load_errors(fields.path):
        return MODEL_TYPES[supported_type(fields)](config)


def _parse_bert(fields: Fields) -> ModelConfig:
    """Parse the fields of BERT, or of Jina's, which has the same model type."""
    if not jina_bert.has_alibi(fields):
        return bert.parse(fields)

    is_directory = fields.path.name == "config.json"  # A GGUF file may lie beside other weights.
    if is_directory and jina_bert.has_more_norms(fields.path.parent):
        fields = fields.replaced(**{jina_bert.MORE_NORMS: True})
    return jina_bert.parse(fields)


def _parse_text(fields: Fields) -> ModelConfig:
    """Parse the fields of the decoder of a model that reads images."""
    return MODEL_TYPES[supported_type(fields)](fields)


def _parse_vision(fields: Fields) -> VisionConfig | None:
    with load_errors(fields.path):
        parse = VISION_TYPES.get(fields.string("model_type"))
        if parse is None or not fields.nested("vision_config").names():
            return None

        return parse(fields)


def supported_type(fields: Fields) -> str:
    """Return the `model_type` of a configuration.

    Raises:
        ModelLoadError: If it is not supported.
    """
    name = "model_type"
    if (model_type := fields.string(name)) in MODEL_TYPES:
        return model_type

    reason = f"not supported; supported are {', '.join(MODEL_TYPES)}"
    if "vision_config" in fields:
        reason = "models that read images are not supported"
    raise fields.error(name, f"is {quote(model_type)}: {reason}")
