"""The config of Gemma 3n in GGUF files."""

from __future__ import annotations

__all__ = ("LAYER_NAMES", "STACKED_NAMES", "gemma3n_fields")

from collections.abc import Mapping
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final

from aiomlc.gguf.container import tensor_error
from aiomlc.gguf.gemma4 import layer_list, layer_types, per_layer_embedding
from aiomlc.gguf.model import GGUFModel

_SCALES: Final = "activation_sparsity_scale"
_LAUREL: Final = "blk.0.laurel_l.weight"
_DIGITS: Final = 6  #: Of a fraction of sparse gates, of which a file has the quantile.

#: Tensors with several matrices, by the graph's name of these, which has a number.
STACKED_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "altup_proj": "model.altup_projections",
        "altup_unembd_proj": "model.altup_unembed_projections",
    }
)
#: The graph's names of a layer's tensors.
LAYER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "inp_gate.weight": "per_layer_input_gate.weight",
        "proj.weight": "per_layer_projection.weight",
        "post_norm.weight": "post_per_layer_input_norm.weight",
        "altup_correct_coef.weight": "altup.correction_coefs.weight",
        "altup_correct_scale.weight": "altup.correct_output_scale",
        "altup_predict_coef.weight": "altup.prediction_coefs.weight",
        "altup_router.weight": "altup.modality_router.weight",
        "altup_router_norm.weight": "altup.router_norm.weight",
        "laurel_l.weight": "laurel.linear_left.weight",
        "laurel_r.weight": "laurel.linear_right.weight",
        "laurel_post_norm.weight": "laurel.post_laurel_norm.weight",
    }
)


def gemma3n_fields(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a config that Gemma 3n has, or that its file has in another form.

    Raises:
        ModelLoadError: If a key or tensor is missing or invalid.
    """
    layers = config["num_hidden_layers"]
    slides = [bool(v) for v in layer_list(model, "attention.sliding_window_pattern", layers)]
    heads = layer_list(model, "attention.head_count_kv", layers)
    if len(set(heads)) > 1:
        problem = f"must be the same in all layers, got {min(heads)} and {max(heads)}"
        raise model.metadata.error(model.key("attention.head_count_kv"), problem)

    theta = model.metadata.number(model.key("rope.freq_base_swa"), 10000.0)
    laurel = model.tensors.get(_LAUREL)
    if laurel is None or len(laurel.shape) != 2:
        path = model.path if laurel is None else laurel.path
        raise tensor_error(path, _LAUREL, "expected a tensor with 2 dimensions")

    return {
        "layer_types": layer_types(slides),
        "num_key_value_heads": heads[0],
        "intermediate_size": list(layer_list(model, "feed_forward_length", layers)),
        "activation_sparsity_pattern": _sparsities(model, layers),
        "laurel_rank": laurel.shape[0],
        "rope_theta": None,
        "rope_scaling": None,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": theta},
            # llama.cpp scales it in the layers without windows only.
            "full_attention": {
                "rope_type": "default",
                "rope_theta": config["rope_theta"],
                **(config["rope_scaling"] or {}),
            },
        },
        **per_layer_embedding(model),
    }


def _sparsities(model: GGUFModel, layers: int) -> list[float]:
    """Return the fractions of which a file has the quantiles; minus infinity is 0."""
    scales = layer_list(model, _SCALES, layers)
    if not all(isinstance(scale, int | float) for scale in scales):
        raise model.metadata.error(model.key(_SCALES), "must be numbers")

    return [round(NormalDist().cdf(float(scale)), _DIGITS) for scale in scales]
