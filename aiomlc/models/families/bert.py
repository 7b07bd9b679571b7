"""BERT, ELECTRA and RoBERTa: bidirectional encoders with a table of positions."""

from __future__ import annotations

__all__ = (
    "check_heads",
    "parse",
    "parse_camembert",
    "parse_electra",
    "parse_roberta",
    "parse_xlm_roberta",
)

from dataclasses import replace

from aiomlc.models.config.encoder import ClassifierConfig, EncoderConfig
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `bert`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    return _parse(fields, "bert", "bert.", ("pooler.dense", "classifier"))


def parse_roberta(fields: Fields) -> EncoderConfig:
    """Read a config of model type `roberta`, whose positions begin after that of the padding.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    return _parse_roberta(fields, "roberta")


def parse_xlm_roberta(fields: Fields) -> EncoderConfig:
    """Read a config of model type `xlm-roberta`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    return _parse_roberta(fields, "xlm-roberta")


def parse_camembert(fields: Fields) -> EncoderConfig:
    """Read a config of model type `camembert`, a RoBERTa.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    return _parse_roberta(fields, "camembert")


def parse_electra(fields: Fields) -> EncoderConfig:
    """Read a config of model type `electra`, the encoder of a discriminator.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    config = _parse(fields, "electra", "electra.", ("classifier.dense", "classifier.out_proj"))
    if (size := fields.integer("embedding_size", 128)) != config.hidden_size:
        names = replace(config.names, embedding_projection="embeddings_project")
        config = replace(config, embedding_size=size, names=names)
    if config.classifier is None:
        return config

    return replace(config, classifier=replace(config.classifier, activation="gelu"))


def _parse_roberta(fields: Fields, model_type: str) -> EncoderConfig:
    head = ("classifier.dense", "classifier.out_proj")
    offset = fields.integer("pad_token_id", 1) + 1
    return _parse(fields, model_type, "roberta.", head, offset)


def _parse(
    fields: Fields, model_type: str, prefix: str, head: tuple[str, str], offset: int = 0
) -> EncoderConfig:
    _refuse_unsupported(fields)
    hidden, heads = check_heads(fields)
    classifier = _parse_classifier(fields, prefix, head)
    positions = "max_position_embeddings"
    return EncoderConfig(
        model_type=model_type,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=fields.integer(
            positions if positions in fields else "context_window_size", minimum=offset + 1
        ),
        position_offset=offset,
        num_token_types=fields.integer("type_vocab_size", 2, minimum=1),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        hf_prefix=prefix,
        classifier=classifier,
    )


def check_heads(
    fields: Fields, hidden_name: str = "hidden_size", heads_name: str = "num_attention_heads"
) -> tuple[int, int]:
    """Return the hidden size, and the heads that divide it.

    Raises:
        ModelLoadError: If a field is missing or invalid.
    """
    heads = fields.integer(heads_name)
    hidden = fields.integer(hidden_name)
    if hidden % heads:
        raise fields.error(heads_name, f"must divide {hidden_name} ({hidden}), got {heads}")

    return hidden, heads


def _parse_classifier(
    fields: Fields, prefix: str, head: tuple[str, str]
) -> ClassifierConfig | None:
    if not is_classifier(fields):
        return None

    dense, output = head
    return ClassifierConfig(
        num_labels=num_labels(fields),
        # BERT's pooler is a part of the encoder.
        dense=prefix + dense if dense.startswith("pooler") else dense,
        output=output,
    )


def _refuse_unsupported(fields: Fields) -> None:
    fields.choice("hidden_act", ("gelu",), "gelu")
    fields.choice("position_embedding_type", ("absolute",), "absolute")
    fields.require_false("is_decoder")
    refuse_quantized(fields)
