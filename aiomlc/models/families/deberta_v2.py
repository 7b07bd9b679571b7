"""DeBERTa 2 and 3: BERT with disentangled attention, usually without a table of positions."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.encoder import (
    ClassifierConfig,
    EncoderConfig,
    EncoderNames,
    RelativePositions,
)
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels

_QUERY, _KEY, _VALUE = (f"attention.self.{part}_proj" for part in ("query", "key", "value"))
_NAMES = EncoderNames(
    qkv=(_QUERY, _KEY, _VALUE),
    relative_projections=("attention.self.pos_query_proj", "attention.self.pos_key_proj"),
)
_PRODUCTS = ["c2p", "p2c"]


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `deberta-v2`, which DeBERTa 3 has, too.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    _refuse_unsupported(fields)
    hidden, heads = check_heads(fields)
    _require_size(fields, "embedding_size", "hidden_size", hidden)
    name = "attention_head_size"
    _require_size(fields, name, "hidden_size / num_attention_heads", hidden // heads)
    classifier = None
    if is_classifier(fields):
        _require_size(fields, "pooler_hidden_size", "hidden_size", hidden)
        fields.choice("pooler_hidden_act", ("gelu",), "gelu")
        classifier = ClassifierConfig(
            num_labels=num_labels(fields),
            dense="pooler.dense",
            activation="gelu",
            output="classifier",
        )
    return EncoderConfig(
        model_type="deberta-v2",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=fields.integer("max_position_embeddings", 512),
        num_token_types=fields.integer("type_vocab_size", 0, minimum=0),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-7),
        position_bias=_parse_positions(fields),
        names=_NAMES,
        hf_prefix="deberta.",
        classifier=classifier,
    )


def _parse_positions(fields: Fields) -> RelativePositions:
    name = "max_relative_positions"
    longest = _size(fields, name) or fields.integer("max_position_embeddings", 512)
    buckets = _size(fields, "position_buckets")
    if buckets and (buckets < 2 or longest - 1 <= buckets // 2):
        problem = f"must be >= 2 and at most twice {name} ({longest}) less 3, got {buckets}"
        raise fields.error("position_buckets", problem)

    norms = [part.strip() for part in fields.string("norm_rel_ebd", "none").lower().split("|")]
    return RelativePositions(
        count=buckets or longest,
        max_distance=longest if buckets else 0,
        has_norm="layer_norm" in norms,
        has_table=fields.boolean("position_biased_input", True),
        has_projections=not fields.boolean("share_att_key", False),
    )


def _size(fields: Fields, name: str) -> int:
    """Return a number that is not used, which is 0 here, if it is not positive."""
    return max(fields.integer(name, -1, minimum=-1), 0)


def _require_size(fields: Fields, name: str, other: str, expected: int) -> None:
    if (size := fields.integer(name, expected)) != expected:
        raise fields.error(name, f"must be {other} ({expected}), got {size}")


def _refuse_unsupported(fields: Fields) -> None:
    refuse_quantized(fields)
    fields.choice("hidden_act", ("gelu",), "gelu")
    if not fields.boolean("relative_attention", False):
        raise fields.error("relative_attention", "must be true, got false")

    name = "pos_att_type"
    if name not in fields:
        raise fields.error(name, f"must be {'|'.join(_PRODUCTS)}, but is missing")

    is_list = fields.is_list(name)
    parts = fields.strings(name) if is_list else fields.string(name).lower().split("|")
    if sorted({part.strip() for part in parts}) != _PRODUCTS:
        raise fields.error(name, f"must be {'|'.join(_PRODUCTS)}, got {'|'.join(parts)}")

    name = "conv_kernel_size"
    if name in fields and not fields.is_zero(name):
        raise fields.error(name, "must be 0: a layer of convolution is not supported")
