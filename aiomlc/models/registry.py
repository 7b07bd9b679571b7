"""The supported model types, and the readers of their configs."""

from __future__ import annotations

__all__ = (
    "MODEL_TYPES",
    "VISION_TYPES",
    "WITH_IMAGES",
    "AnyConfig",
    "ModelConfig",
    "Tower",
    "parse_model",
    "parse_tower",
    "supported_type",
)

from collections.abc import Callable, Mapping
from types import MappingProxyType

from aiomlc.models.config.audio import AudioConfig
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.encoder import BlockEncoderConfig, EncoderConfig
from aiomlc.models.config.fields import Fields, quote
from aiomlc.models.config.speech import SpeechConfig
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families import (
    albert,
    bert,
    clip,
    cohere,
    deberta_v2,
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
    qwen3_asr,
    qwen3_moe,
    qwen3_next,
    qwen3_vl,
    qwen_towers,
    seed_oss,
    siglip,
    smollm3,
    stablelm,
    starcoder2,
    whisper,
)
from aiomlc.models.families.vision_towers import text_fields
from aiomlc.validation.model_files import load_errors

ModelConfig = DecoderConfig | EncoderConfig | BlockEncoderConfig | SpeechConfig
Tower = VisionConfig | AudioConfig
#: The config of anything that is compiled to a library: a tower is a part of a model.
AnyConfig = ModelConfig | Tower

MODEL_TYPES: Mapping[str, Callable[[Fields], ModelConfig]] = MappingProxyType(
    {
        "albert": albert.parse,
        "bert": lambda fields: _parse_bert(fields),
        "bert-bge": bert.parse,  # MLC LLM's name for checkpoints with unused tensors.
        "camembert": bert.parse_camembert,
        "clip": clip.parse,
        "cohere": cohere.parse,
        "deberta-v2": deberta_v2.parse,
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
        "qwen3_asr": qwen3_asr.parse,
        "qwen3_moe": qwen3_moe.parse,
        "qwen3_next": qwen3_next.parse,
        "qwen3_vl": qwen3_vl.parse,
        "qwen3_vl_moe": qwen3_vl.parse_moe,
        "roberta": bert.parse_roberta,
        "seed_oss": seed_oss.parse,
        "siglip": siglip.parse,
        "smollm3": smollm3.parse,
        "smolvlm": lambda fields: _parse_text(text_fields(fields)),
        "stablelm": stablelm.parse,
        "starcoder2": starcoder2.parse,
        "whisper": whisper.parse,
        "xlm-roberta": bert.parse_xlm_roberta,
    }
)

#: Model types with a tower for images, and the readers of their towers' configs.
VISION_TYPES: Mapping[str, Callable[[Fields], VisionConfig | None]] = MappingProxyType(
    {
        "clip": clip.parse_vision,
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
        "siglip": siglip.parse_vision,
        "smolvlm": idefics3.parse_smolvlm_vision,
    }
)

#: Model types that read audio, and the readers of their towers' configs.
AUDIO_TYPES: Mapping[str, Callable[[Fields], AudioConfig]] = MappingProxyType(
    {"qwen3_asr": qwen3_asr.parse_audio}
)

#: The changes of decoders that read images but have the GGUF files of text.
WITH_IMAGES: Mapping[str, Callable[[Fields, DecoderConfig], DecoderConfig]] = MappingProxyType(
    {
        "gemma3_text": lambda _, config: config.with_attention(sees_whole_pieces=True),
        "qwen3_5_moe_text": qwen3_5.with_image_positions,
        "qwen3_5_text": qwen3_5.with_image_positions,
    }
)


def parse_model(fields: Fields, config: Fields) -> ModelConfig:
    """Parse `config` as the model type that `fields` names.

    Raises:
        ModelLoadError: If the `model_type` is unknown or a field is invalid.
    """
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


def parse_tower(fields: Fields) -> Tower | None:
    """Parse the tower of a model, if its config has one.

    Raises:
        ModelLoadError: If a field is invalid.
    """
    with load_errors(fields.path):
        model_type = fields.string("model_type")
        if (parse_audio := AUDIO_TYPES.get(model_type)) is not None:
            return parse_audio(fields)

        parse = VISION_TYPES.get(model_type)
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
