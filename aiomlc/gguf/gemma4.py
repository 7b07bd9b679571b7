"""The config of Gemma 4, whose keys in GGUF files are per layer or per kind of layer."""

from __future__ import annotations

__all__ = (
    "LAYER_NAMES",
    "MODEL_NAMES",
    "gemma4_fields",
    "layer_list",
    "layer_types",
    "per_layer_embedding",
)

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from aiomlc.gguf.container import tensor_error
from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.rope import scaling_type
from aiomlc.validation.json_values import safe_repr

_HEADS: Final = "attention.head_count_kv"
_PATTERN: Final = "attention.sliding_window_pattern"
_SHARED: Final = "attention.shared_kv_layers"
_INNER: Final = "feed_forward_length"
_PER_LAYER: Final = "embedding_length_per_layer_input"
_TABLE: Final = "per_layer_token_embd.weight"
_DIVISORS: Final = "rope_freqs.weight"
_ROTATED: Final = "rope.dimension_count"
_SCALING: Final = "rope.scaling.type"
_KINDS: Final = ("full_attention", "sliding_attention")
_NOT_ROTATED: Final = 1e20  #: Divisors from here on stop a pair; the converter writes 1e30.

#: The graph's names of tensors outside of layers.
MODEL_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "per_layer_token_embd": "model.embed_tokens_per_layer",
        "per_layer_model_proj": "model.per_layer_model_projection",
        "per_layer_proj_norm": "model.per_layer_projection_norm",
    }
)
#: The graph's names of a layer's tensors.
LAYER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "layer_output_scale.weight": "layer_scalar",
        "inp_gate.weight": "per_layer_input_gate.weight",
        "proj.weight": "per_layer_projection.weight",
        "post_norm.weight": "post_per_layer_input_norm.weight",
        "ffn_gate_inp.scale": "mlp.router_norm.weight",
        "ffn_down_exps.scale": "mlp.expert_scales",
        "post_ffw_norm_1.weight": "mlp.post_dense_norm.weight",
        "pre_ffw_norm_2.weight": "mlp.pre_experts_norm.weight",
        "post_ffw_norm_2.weight": "mlp.post_experts_norm.weight",
    }
)


def gemma4_fields(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a config that Gemma 4 has, or that its file has in another form.

    Raises:
        ModelLoadError: If a key or tensor is missing or invalid.
    """
    metadata = model.metadata
    layers = config["num_hidden_layers"]
    key = model.key(_PATTERN)
    slides = [bool(value) for value in layer_list(model, _PATTERN, layers)]
    if not slides or slides[-1]:
        raise metadata.error(key, "must be false for the last layer, which has full attention")

    heads = _by_kind(model, slides)
    full = [layer for layer, is_sliding in enumerate(slides) if not is_sliding]
    head_dim = config["head_dim"]
    sizes = {"head_dim": head_dim, "num_key_value_heads": heads[False]}
    sliding_dim = metadata.integer(model.key("attention.key_length_swa"), head_dim)
    _check_rope(model, head_dim, sliding_dim)
    theta = metadata.number(model.key("rope.freq_base_swa"), 10000.0)
    return {
        "layer_types": layer_types(slides),
        "head_dim": sliding_dim,
        "num_key_value_heads": heads.get(True, heads[False]),
        "per_layer_config": {str(layer): sizes for layer in full},
        "attention_k_eq_v": not any(
            f"blk.{full[0]}.{name}.weight" in model.tensors for name in ("attn_v", "attn_qkv")
        ),
        "rope_theta": None,
        "partial_rotary_factor": None,
        "rope_scaling": None,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": theta},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": _rotated(model),
                "rope_theta": config["rope_theta"],
            },
        },
        **per_layer_embedding(model),
        **_feed_forward(model, layers),
        "enable_moe_block": bool(config.get("num_experts")),
        "mlp_only_layers": None,
    }


def layer_types(slides: Sequence[bool]) -> list[str]:
    """Return the types of layers by whether they have a window."""
    return [_KINDS[is_sliding] for is_sliding in slides]


def layer_list(model: GGUFModel, suffix: str, layers: int) -> Sequence[Any]:
    """Return an array with an entry for each layer; one value stands for all of them."""
    key = model.key(suffix)
    value = model.metadata.value(key)
    if value is None:
        raise model.metadata.error(key, "is missing")

    values = value if isinstance(value, list) else [value] * layers
    if len(values) != layers:
        problem = f"must have {layers} entries, one per layer, got {len(values)}"
        raise model.metadata.error(key, problem)

    return values


def _by_kind(model: GGUFModel, slides: Sequence[bool]) -> dict[bool, int]:
    """Return the key heads of layers with windows and without."""
    heads: dict[bool, int] = {}
    for is_sliding, count in zip(slides, layer_list(model, _HEADS, len(slides)), strict=True):
        if heads.setdefault(is_sliding, count) != count:
            problem = f"must be the same in all layers of a kind, got {heads[is_sliding]}, {count}"
            raise model.metadata.error(model.key(_HEADS), problem)
    return heads


def _check_rope(model: GGUFModel, head_dim: int, sliding_dim: int) -> None:
    """Require that only the divisors of frequencies limit the rotation, and nothing scales it."""
    metadata = model.metadata
    for suffix, size in ((_ROTATED, head_dim), (f"{_ROTATED}_swa", sliding_dim)):
        if (rotated := metadata.integer(model.key(suffix), size)) != size:
            problem = f"must be the size of a head ({size}), got {rotated}"
            raise metadata.error(model.key(suffix), problem)

    if (kind := scaling_type(model)) != "none":
        problem = f"must be none, got {safe_repr(kind)}: scaling is not supported for this model"
        raise metadata.error(model.key(_SCALING), problem)


def _rotated(model: GGUFModel) -> float:
    """Return the fraction of a full layer's head that is rotated."""
    divisors = model.vector(_DIVISORS)
    if divisors is None:
        return 1.0

    kept = [divisor for divisor in divisors if divisor < _NOT_ROTATED]
    if divisors[: len(kept)] != kept or any(divisor != 1.0 for divisor in kept):
        problem = f"must be 1, and from a pair on at least {_NOT_ROTATED:g}"
        raise tensor_error(model.tensors[_DIVISORS].path, _DIVISORS, problem)

    return len(kept) / len(divisors)


def per_layer_embedding(model: GGUFModel) -> dict[str, int]:
    """Return the fields of the second embedding, which may be absent."""
    size = model.metadata.integer(model.key(_PER_LAYER), 0)
    table = model.tensors.get(_TABLE)
    if size and (table is None or len(table.shape) != 2):
        problem = f"expected a tensor with 2 dimensions, as {model.key(_PER_LAYER)} is {size}"
        raise tensor_error(model.path if table is None else table.path, _TABLE, problem)

    rows = 1 if table is None else table.shape[0]
    return {"hidden_size_per_layer_input": size, "vocab_size_per_layer_input": rows}


def _feed_forward(model: GGUFModel, layers: int) -> dict[str, Any]:
    """The layers that share keys may have MLPs of twice the width."""
    shared = model.metadata.integer(model.key(_SHARED), 0)
    sizes = layer_list(model, _INNER, layers)
    first = sizes[0]
    is_wide = bool(shared) and sizes[-1] == 2 * first
    own = max(0, layers - shared)
    if list(sizes) != [first] * own + [first * (1 + is_wide)] * (layers - own):
        problem = f"must be the same in all layers, or twice that in the last {shared} ones"
        raise model.metadata.error(model.key(_INNER), problem)

    return {
        "num_kv_shared_layers": shared,
        "intermediate_size": first,
        "use_double_wide_mlp": is_wide,
    }
