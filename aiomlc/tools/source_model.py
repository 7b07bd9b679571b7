"""The model that a tool reads: its directory, configuration and checkpoint."""

from __future__ import annotations

__all__ = (
    "SourceModel",
    "fetch_source",
    "read_hugging_face_config",
    "read_source_model",
    "read_tower",
    "require_quantization",
)

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Final

from aiomlc.errors import BadRequestError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.shards import is_gguf
from aiomlc.models import (
    MODEL_TYPES,
    BlockEncoderConfig,
    EncoderConfig,
    EncoderNames,
    Parameter,
    SpeechConfig,
    VisionConfig,
    describe_model,
    model_parameters,
    supported_type,
    with_own_head,
)
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.quantization import StoredQuantization
from aiomlc.models.embedders import with_prefix
from aiomlc.runtime.loading.model_directory import fetch_model
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.tools.mlc_format import MLCFormat
from aiomlc.tools.model_config import ConvertibleConfig
from aiomlc.validation.arguments import check_path
from aiomlc.validation.model_files import load_errors, read_object
from aiomlc.weights.formats.directory import read_source
from aiomlc.weights.formats.source import Source

_MLC_CONFIG: Final = "mlc-chat-config.json"

# Model types whose tensors MLC LLM stores differently, or does not have: they cannot be read back.
_UNSUPPORTED = (
    "cohere",
    "gemma3n",
    "gemma3n_text",
    "gemma4",
    "gemma4_text",
    "gemma4_unified",
    "gemma4_unified_text",
    "gpt_oss",
    "idefics3",
    "internvl",
    "llava_next",
    "mistral3",
    "nemotron",
    "qwen3_asr",
    "roberta",
    "smolvlm",
    "xlm-roberta",
)
_LAYER: Final = "vision_feature_layer"
_LLAVA_DECODERS: Final = ("llama", "mistral")
# Model types whose output head is stored even if it equals the embedding.
_ALWAYS_WITH_HEAD = ("starcoder2",)
_AWQ_GROUP: Final = 128
_NEEDED: Final = MappingProxyType(
    {
        "awq": f"that AutoAWQ quantized in groups of {_AWQ_GROUP}",
        "fp8": "in FP8 with scales of blocks (weight_block_size)",
    }
)


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A checkpoint and the parameters of its architecture."""

    config: ConvertibleConfig
    parameters: Sequence[Parameter]
    source: Source
    vision: VisionConfig | None = None  #: The tower of LLaVA.

    @property
    def model_type(self) -> str:
        """The type of the whole model."""
        return self.config.model_type if self.vision is None else self.vision.model_type


async def fetch_source(
    model: str | PathLike[str], on_progress: Callable[[LoadProgress], object]
) -> Path:
    """Return the directory of a model, which is downloaded if it is a repository of the hub.

    Raises:
        BadRequestError: If the name is malformed, or the model is a GGUF file or in MLC's format.
        ModelLoadError: If there is no such model.
    """
    check_path("config", model)
    path = Path(model)
    name = path.parent if path.name == "config.json" else model
    directory = (await fetch_model(name, on_progress)).path
    if is_gguf(directory):
        raise BadRequestError(
            f"{directory} is a GGUF file, which opens as it is and cannot be converted; pass the "
            "Hugging Face directory that it was made from",
            param="config",
        )

    if (directory / _MLC_CONFIG).exists() and not (directory / "config.json").exists():
        raise BadRequestError(
            f"{directory} is in MLC's format already and opens as it is; pass the Hugging Face "
            "directory that it was made from",
            param="config",
        )

    return directory


def read_source_model(directory: Path, checkpoint: Path | None, model_type: str) -> SourceModel:
    """Read the configuration and the tensors of a Hugging Face directory.

    Args:
        checkpoint: The directory of the weights, if it is another one.

    Raises:
        ModelLoadError: If a file is missing or invalid.
        BadRequestError: If the model is already converted, or its architecture is not supported.
    """
    config = read_hugging_face_config(directory, model_type)
    with load_errors(directory):
        source = read_source(ConfigFiles(checkpoint or directory))
        if source.is_mlc:
            raise BadRequestError(
                f"{source.directory} has the weights of an MLC directory, which cannot be "
                "converted again; pass the Hugging Face directory that they are made from",
                param="source",
            )

        vision = read_tower(directory, config)
        if vision is not None:
            source = source.renamed(vision.renamed)
        return SourceModel(config, _parameters(config), source, vision)


def read_tower(directory: Path, config: ConvertibleConfig) -> VisionConfig | None:
    """Return the tower of a model whose tower MLC's format has: LLaVA with CLIP.

    Args:
        config: The config of the decoder.

    Raises:
        ModelLoadError: If `config.json` is invalid.
        BadRequestError: If MLC LLM has no such tower.
    """
    files = ConfigFiles(directory)
    values = files.object("config.json") or {}
    if values.get("model_type") != "llava":
        return None

    vision = describe_model(files).tower
    is_known = config.model_type in _LLAVA_DECODERS and values.get(_LAYER, -2) == -2
    if not isinstance(vision, VisionConfig) or not is_known or not _is_mlc_tower(vision):
        raise BadRequestError(
            f"{directory}: MLC's format has LLaVA with a tower of CLIP, without its last layer and "
            f"its class token, and a decoder of type {' or '.join(_LLAVA_DECODERS)}; open the "
            "Hugging Face directory instead",
            param="model_type",
        )

    return vision


def _is_mlc_tower(vision: VisionConfig) -> bool:
    is_clip = vision.has_class_token and vision.pre_norm and vision.activation == "quick_gelu"
    return is_clip and vision.drops_class_token


def require_quantization(source: Source, mlc_format: MLCFormat) -> None:
    """Require that the weights are quantized as the format needs it: mostly not at all.

    Raises:
        BadRequestError: If they are not.
    """
    stored = source.quantization
    if mlc_format.source_method is None:
        if stored is not None:
            raise BadRequestError(
                f"{source.directory} is already quantized ({stored.name}) and cannot be converted "
                f"to {mlc_format.name}; pass the model that it was made from",
                param="source",
            )

        return

    problem = _mismatch(stored, mlc_format.source_method)
    if problem:
        raise BadRequestError(
            f"quantization {mlc_format.name} needs a checkpoint "
            f"{_NEEDED[mlc_format.source_method]}; {source.directory} {problem}",
            param="quantization",
        )


def _mismatch(stored: StoredQuantization | None, method: str) -> str:
    """Return what is wrong with a quantization for a format; empty if nothing is."""
    if stored is None:
        return "is not quantized"

    if stored.name != method:
        return f"is quantized by {stored.name}"

    if method == "awq" and stored.group_size != _AWQ_GROUP:
        return f"has groups of {stored.group_size}"

    return "has no weight_block_size" if method == "fp8" and stored.block is None else ""


def _parameters(config: ConvertibleConfig) -> Sequence[Parameter]:
    if (
        isinstance(config, EncoderConfig)
        or not config.tie_word_embeddings
        or config.model_type not in _ALWAYS_WITH_HEAD
    ):
        return model_parameters(config)

    embedding, *others, head = model_parameters(replace(config, tie_word_embeddings=False))
    return (replace(head, sources=embedding.sources), embedding, *others)


def _is_mlc_encoder(config: EncoderConfig) -> bool:
    return config.classifier is None and config.names == EncoderNames()


def read_hugging_face_config(directory: Path, model_type: str) -> ConvertibleConfig:
    """Read `config.json`.

    Raises:
        ModelLoadError: If it is missing or invalid.
        BadRequestError: If the architecture is not supported.
    """
    path = directory / "config.json"
    values = read_object(path)
    fields = Fields(values if model_type == "auto" else {**values, "model_type": model_type}, path)
    with load_errors(path):
        name = supported_type(fields)
        config = with_own_head(MODEL_TYPES[name](fields), directory)
        if isinstance(config, EncoderConfig):
            config = with_prefix(config, directory)
    if (
        name in _UNSUPPORTED
        or isinstance(config, BlockEncoderConfig | SpeechConfig)
        or (isinstance(config, EncoderConfig) and not _is_mlc_encoder(config))
    ):
        raise BadRequestError(
            f"{path}: model_type {name!r} cannot be converted: MLC's format has other tensors; "
            "open the Hugging Face directory instead",
            param="model_type",
        )

    return config
