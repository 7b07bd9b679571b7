"""The fraction of the machine's limit that a rate of aiomlc uses. Only `read_costs` does I/O."""

from __future__ import annotations

__all__ = ("ModelCosts", "fraction_of_limit", "read_costs")

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiomlc.cache import WEIGHTS, cache_home, list_entries
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import quantization_named
from aiomlc.config import KVCacheType
from benchmarks.suite.machine import MachineLimits
from benchmarks.suite.measured_engine import UnavailableError
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Row

_EMBEDDING, _HEAD = "model.embed_tokens", "lm_head"
_EXPERTS = ".moe_"  # Substring of the names of the experts' matrices.


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Bytes and multiplications per token; of the experts, only a token's active ones count."""

    weight_bytes: int  #: Read by one decode step; without experts, at any batch size.
    kv_bytes: int  #: Added to the KV cache by one token, and read for each later token.
    block_parameters: int  #: In the matrices of the blocks that multiply each prompt token.
    is_q4: bool
    has_experts: bool = False

    def decode_bytes(self, context: float, streams: int = 1) -> float:
        """Return the bytes read per decoded token, for `streams` streams after `context` tokens."""
        return self.weight_bytes / streams + self.kv_bytes * context


def read_costs(model: Path, quantization: str, kv_cache_dtype: KVCacheType = "auto") -> ModelCosts:
    """Compute the costs from the packed weights that the engine maps.

    Raises:
        UnavailableError: If the cache has no packed weights of the model.
    """
    index, nbytes = _find_packed_weights(model, quantization)
    offsets = dict(zip((p["name"] for p in index["params"]), index["offsets"], strict=True))
    if _EMBEDDING not in offsets:
        raise UnavailableError(f"the packed weights of {model} have no {_EMBEDDING}")

    if _HEAD in offsets:  # Otherwise the embedding is also the head and is read in full.
        nbytes -= offsets[_EMBEDDING][1]

    config = json.loads((model / "config.json").read_bytes())
    inactive = _inactive_fraction(config)
    experts = [name for name in offsets if _EXPERTS in name]
    nbytes -= round(inactive * sum(offsets[name][1] for name in experts))
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_rows = 2 * config["num_hidden_layers"] * config["num_key_value_heads"]
    kind = quantization_named(quantization)
    dtype = kind.kv_dtype if kv_cache_dtype == "auto" else kv_cache_dtype
    row_bytes = KVCache(kind.compute_dtype, dtype, 4 * dtype.startswith("int")).row_bytes(head_dim)
    blocks = (
        math.prod(param["shape"]) * (1 - inactive if _EXPERTS in param["name"] else 1)
        for param in index["params"]
        if param["kind"] == "matrix" and param["name"] not in (_EMBEDDING, _HEAD)
    )
    return ModelCosts(
        weight_bytes=nbytes,
        kv_bytes=kv_rows * row_bytes,
        block_parameters=round(sum(blocks)),
        is_q4=kind.matrix_format == "q4",
        has_experts=bool(experts),
    )


def fraction_of_limit(
    row: Row, rate: float, costs: ModelCosts, limits: MachineLimits
) -> float | None:
    """Return `rate` divided by the rate that memory (for prefill: int8 arithmetic) would allow.

    None for rows without such a limit: prefill of weights other than 4-bit ones, which are not
    multiplied as int8, and batches of models with experts, whose rows select different experts.
    """
    if row.kind == "prefill":
        if limits.int8_gop_s is None or not costs.is_q4:
            return None

        return 2 * costs.block_parameters * rate / (limits.int8_gop_s * 1e9)

    if row.kind == "decode":
        nbytes = costs.decode_bytes(row.size + DECODE_TOKENS / 2)
    elif row.kind == "batch" and not costs.has_experts:
        nbytes = costs.decode_bytes(BATCH_PROMPT + BATCH_TOKENS / 2, row.size)
    else:
        return None

    return nbytes * rate / (limits.dram_read_gb_s * 1e9)


def _inactive_fraction(config: Mapping[str, Any]) -> float:
    """Return the fraction of the experts that are inactive for a token."""
    count = config.get("num_experts") or config.get("num_local_experts")
    return 1 - config["num_experts_per_tok"] / count if count else 0.0


def _find_packed_weights(model: Path, quantization: str) -> tuple[dict[str, Any], int]:
    """Return the index and the size in bytes of the model's newest entry in the weight cache."""
    for entry in list_entries():
        description = (entry.info.get("model"), entry.info.get("quantization"))
        if entry.stored.kind == WEIGHTS and description == (str(model.resolve()), quantization):
            return dict(entry.info), (entry.stored.path / "params.bin").stat().st_size

    raise UnavailableError(f"{cache_home()} has no packed weights of {model} as {quantization}")
