"""Jina's BERT of Jina Embeddings 2: ALiBi in place of positions, and a gate of GELU.

Its configs have the model type `bert`. The German, Spanish, Chinese and code models have more norms
and other names of tensors, of which the configs say nothing.
"""

from __future__ import annotations

__all__ = ("MORE_NORMS", "has_alibi", "has_more_norms", "parse")

from pathlib import Path
from typing import Final

from aiomlc.models.config.encoder import Alibi, EncoderConfig, EncoderNames
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.config.output_head import has_tensor
from aiomlc.models.families.bert import check_heads
from aiomlc.models.families.sequence_classifier import is_classifier

_POSITIONS = "position_embedding_type"
#: The field of a config that says whether there are more norms; only we write it.
MORE_NORMS: Final = "has_more_norms"
_PREFIX = "bert."
_NAMES = EncoderNames(up=("mlp.gated_layers",), down="mlp.wo", output_norm="mlp.layernorm")
_MORE_NAMES = EncoderNames(
    query_norm="attention.self.layer_norm_q",
    key_norm="attention.self.layer_norm_k",
    residual_norm="layer_norm_1",
    up=("mlp.up_gated_layer",),
    down="mlp.down_layer",
    output_norm="layer_norm_2",
)


def has_alibi(fields: Fields) -> bool:
    """Return whether a config of model type `bert` is that of such a model."""
    return fields.string(_POSITIONS, "absolute") == "alibi"


def has_more_norms(directory: Path) -> bool:
    """Return whether the tensors of such a model are those of one with more norms."""
    name = f"{_MORE_NAMES.layer.format(0)}{_MORE_NAMES.query_norm}.weight"
    return has_tensor(directory, name) or has_tensor(directory, _PREFIX + name)


def parse(fields: Fields) -> EncoderConfig:
    """Read a config of model type `bert` with ALiBi.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    refuse_quantized(fields)
    fields.choice("hidden_act", ("gelu",), "gelu")
    fields.choice("feed_forward_type", ("geglu",), "original")
    fields.require_false("is_decoder")
    if is_classifier(fields):
        problem = "is a sequence classifier, which is not supported with ALiBi"
        raise fields.error("architectures", problem)

    hidden, heads = check_heads(fields)
    more_norms = fields.boolean(MORE_NORMS, False)
    return EncoderConfig(
        model_type="jina_bert",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_positions=fields.integer("max_position_embeddings"),
        num_token_types=fields.integer("type_vocab_size", 2, minimum=1),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        position_bias=Alibi.of_heads(heads),
        gate="gelu",
        has_gate_last=more_norms,
        up_bias=False,
        has_more_norms=more_norms,
        names=_MORE_NAMES if more_norms else _NAMES,
        hf_prefix=_PREFIX,
    )
