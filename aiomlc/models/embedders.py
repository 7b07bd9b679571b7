"""Decoders that embed, classify or rank: their blocks become an encoder."""

from __future__ import annotations

__all__ = ("as_encoder", "with_prefix")

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.gguf.model import read_gguf
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.encoder import BlockEncoderConfig, ClassifierConfig, EncoderConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.output_head import has_tensor
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels
from aiomlc.validation.model_files import read_json

_PREFIX = "model."
Encoder = TypeVar("Encoder", EncoderConfig, BlockEncoderConfig)


def as_encoder(
    config: DecoderConfig, fields: Fields, files: ConfigFiles
) -> DecoderConfig | BlockEncoderConfig:
    """Return the encoder that the blocks of a decoder are, if its files ask for one.

    They do if `architectures` is a sequence classifier, or if the model is for embeddings: a
    directory has the files of sentence-transformers or MLC's `model_task`, a GGUF file the type of
    a pooling. A module `LogitScore` makes it a reranker, whose score is in the logits of tokens.
    Every other decoder is returned as it is.

    Raises:
        ModelLoadError: If a layer of such a model is recurrent or has embeddings of its own.
    """
    classifier = None
    if is_classifier(fields):
        classifier = ClassifierConfig(
            num_labels=num_labels(fields), pooling="last", output="score", output_bias=False
        )
    if classifier is None and not _embeds(files):
        return config

    if config.recurrent or config.per_layer_embedding is not None:
        kind = "recurrent layers" if config.recurrent else "embeddings for each layer"
        raise fields.error("model_type", f"has {kind}, with which it cannot embed or classify")

    has_token_logits = classifier is None and _scores_by_logits(files)
    if has_token_logits and (config.logit_scale, config.final_logit_softcapping) != (1.0, 0.0):
        raise fields.error("model_type", "changes logits, with which it cannot rank")

    encoder = BlockEncoderConfig(
        blocks=config,
        is_causal=True,
        hf_prefix=_PREFIX,
        classifier=classifier,
        has_token_logits=has_token_logits,
    )
    return encoder if files.is_gguf else with_prefix(encoder, files.model)


def with_prefix(config: Encoder, directory: Path) -> Encoder:
    """Return the config with the prefix that the names of tensors have in a directory, or without.

    A model that was saved without a head for tokens or classes has none.
    """
    words = config.names.words if isinstance(config, EncoderConfig) else "embed_tokens"
    is_prefixed = has_tensor(directory, f"{config.hf_prefix}{words}.weight")
    return replace(config, hf_prefix=config.hf_prefix if is_prefixed else "")


def _scores_by_logits(files: ConfigFiles) -> bool:
    path = files.model / "modules.json"
    if files.is_gguf or not path.exists():
        return False

    modules = read_json(path)
    kinds = [each.get("type") for each in modules if isinstance(each, dict)]
    return any(isinstance(kind, str) and kind.endswith(".LogitScore") for kind in kinds)


def _embeds(files: ConfigFiles) -> bool:
    if files.is_gguf:
        model = read_gguf(files.model)
        return model.key("pooling_type") in model.metadata

    if (mlc := files.object("mlc-chat-config.json")) is not None:
        return mlc.get("model_task") == "embedding"

    return (files.model / "modules.json").exists()
