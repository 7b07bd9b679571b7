"""The fields of a config that an architecture of GGUF has in another form, or not at all."""

from __future__ import annotations

__all__ = (
    "deepstack",
    "encoder",
    "exaone4",
    "gemma3",
    "gemma_attention_scale",
    "gpt_oss",
    "jina_bert",
    "lfm2moe",
    "llama",
    "olmo2",
    "phi2",
    "qwen35",
)

from collections.abc import Mapping
from typing import Any

from aiomlc.gguf.model import GGUFModel

_QUERY_BIASES = (".attn_q.bias", ".attn_qkv.bias")


def phi2(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """llama.cpp's converter writes the number of query heads also for those of keys."""
    keys = model.tensors.get("blk.0.attn_k.weight")
    if keys is None or len(keys.shape) != 2 or keys.shape[0] % config["head_dim"]:
        return {}

    return {"num_key_value_heads": keys.shape[0] // config["head_dim"]}


def llama(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Mixtral has the architecture `llama`."""
    if not config.get("num_experts"):
        return {"num_experts": None, "num_experts_per_tok": None}

    return {"model_type": "mixtral", "sliding_window": None}


_RANK_POOLING = 4  # Of rerankers, in place of the pooling of an embedder.


def encoder(model: GGUFModel, _: Mapping[str, Any]) -> dict[str, Any]:
    """Types of tokens are counted in the tokenizer; a reranker has a head."""
    types = model.metadata.integer("tokenizer.ggml.token_type_count", 1)
    fields: dict[str, Any] = {"type_vocab_size": types}
    if model.metadata.integer(model.key("pooling_type"), 0) != _RANK_POOLING:
        return fields

    head = model.tensors.get("cls.output.weight") or model.tensors.get("cls.weight")
    labels = 1 if head is None else head.shape[0]
    return fields | {"architectures": ["ForSequenceClassification"], "num_labels": labels}


def jina_bert(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Of files with norms of queries and keys, the order of the gate depends on the converter."""
    name = "blk.0.attn_q_norm.weight"
    if name in model.tensors:
        problem = f"is jina-bert-v2 with {name}, which is not supported"
        raise model.metadata.error("general.architecture", problem)

    alibi = {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}
    return encoder(model, config) | alibi


def gemma_attention_scale(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Attention is scaled by the head size, in the 27B models by hidden size / heads."""
    scale = model.metadata.number(model.key("attention.scale"), 0.0)
    if scale > 0:
        return {"query_pre_attn_scalar": round(scale**-2, 6)}

    is_27b = config["num_hidden_layers"] == {"gemma2": 46, "gemma3": 62}[model.architecture]
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    return {"query_pre_attn_scalar": hidden // heads if is_27b else config["head_dim"]}


def gemma3(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    return gemma_attention_scale(model, config) | _layer_types(model, config)


def _layer_types(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """Windows are in every layer but each n-th, or in the layers of an array of booleans."""
    key = model.key("attention.sliding_window_pattern")
    pattern = model.metadata.value(key)
    if pattern is None or not config.get("sliding_window"):
        return {}

    if not isinstance(pattern, list):
        return {"sliding_window_pattern": model.metadata.integer(key)}

    kinds = ("full_attention", "sliding_attention")
    return {"layer_types": [kinds[bool(is_sliding)] for is_sliding in pattern]}


def olmo2(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """OLMo 3 is OLMo 2 with windows, and scales RoPE only in the layers without."""
    if not config.get("sliding_window"):
        return {}

    fields: dict[str, Any] = {"model_type": "olmo3"} | _layer_types(model, config)
    if scaling := config.get("rope_scaling"):
        theta = config["rope_theta"]
        full = {"rope_theta": theta, **scaling}
        local = {"rope_type": "default", "rope_theta": theta}
        fields |= {"rope_parameters": {"full_attention": full, "sliding_attention": local}}
        fields |= {"rope_scaling": None}
    return fields


def exaone4(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    if not config.get("sliding_window"):
        return {"sliding_window": None}

    return {"sliding_window_pattern": 4} | _layer_types(model, config)


def gpt_oss(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """The model was trained without rounding YaRN's limits, which a file does not say."""
    scaling = config.get("rope_scaling") or {"rope_type": "default"}
    return {"rope_scaling": {**scaling, "truncate": False}} | _layer_types(model, config)


def qwen35(model: GGUFModel, config: Mapping[str, Any]) -> dict[str, Any]:
    """All heads together have the inner size; the layers of draft heads are counted, too. The first
    layer has no biases of queries, as it is a delta net."""
    inner = model.metadata.integer(model.key("ssm.inner_size"))
    heads = config["linear_num_value_heads"]
    if heads < 1 or inner % heads:
        problem = f"must be a multiple of {model.key('ssm.time_step_rank')} ({heads}), got {inner}"
        raise model.metadata.error(model.key("ssm.inner_size"), problem)

    drafts = model.metadata.integer(model.key("nextn_predict_layers"), 0)
    layers = config["num_hidden_layers"] - drafts
    fields: dict[str, Any] = {
        "linear_value_head_dim": inner // heads,
        "num_hidden_layers": layers,
        "attention_bias": any(name.endswith(_QUERY_BIASES) for name in model.tensors),
    }
    key = model.key("attention.recurrent_layers")
    if isinstance(recurrent := model.metadata.value(key), list):
        kinds = ("full_attention", "linear_attention")
        fields["layer_types"] = [kinds[bool(is_recurrent)] for is_recurrent in recurrent[:layers]]
    return fields


def deepstack(model: GGUFModel, _: Mapping[str, Any]) -> dict[str, Any]:
    """A file says how many layers add features of an image, not which layers of the tower."""
    layers = model.metadata.integer(model.key("n_deepstack_layers"), 0)
    return {"vision_config": {"deepstack_visual_indexes": list(range(layers))}}


def lfm2moe(model: GGUFModel, _: Mapping[str, Any]) -> dict[str, Any]:
    """The experts' bias is in the layers that have experts only."""
    return {"use_expert_bias": any(name.endswith(".exp_probs_b.bias") for name in model.tensors)}
