"""Which share of the machine's limit a rate of aiomlc uses. All but `read_costs` is arithmetic."""

from __future__ import annotations

__all__ = ("ModelCosts", "read_costs", "share_of_limit")

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiomlc.cache_dir import cache_home
from aiomlc.compiler.kv_cache import kv_cache_of
from aiomlc.compiler.quantization import quantization_named
from aiomlc.config import KVCacheType
from benchmarks.suite.contestant import UnavailableError
from benchmarks.suite.machine import MachineLimits
from benchmarks.suite.plan import BATCH_PROMPT, BATCH_TOKENS, DECODE_TOKENS, Row

_EMBEDDING, _HEAD = "model.embed_tokens", "lm_head"
_EXPERTS = ".moe_"  # In the names of matrices of which a token goes through a part.


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """What a token costs, whoever computes it. Of experts, those that one token goes to count."""

    weight_bytes: int  #: That one decode step reads, of whatever batch if there are no experts.
    kv_bytes: int  #: That one token adds to the cache, and every later one of its stream reads.
    block_parameters: int  #: In matrices that every token of a prompt goes through.
    is_q4: bool
    has_experts: bool = False

    def decode_bytes(self, context: float, streams: int = 1) -> float:
        """Read per token that is decoded, by each of `streams`, after `context` tokens."""
        return self.weight_bytes / streams + self.kv_bytes * context


def read_costs(model: Path, quantization: str, kv_cache_dtype: KVCacheType = "auto") -> ModelCosts:
    """Take the costs from the packed weights that the engine maps.

    Raises:
        UnavailableError: the model has not been packed.
    """
    index, nbytes = _packed(model, quantization)
    offsets = dict(zip((p["name"] for p in index["params"]), index["offsets"], strict=True))
    if _EMBEDDING not in offsets:
        raise UnavailableError(f"the packed weights of {model} have no {_EMBEDDING}")

    if _HEAD in offsets:  # Else the embedding is the head, and is read as a whole.
        nbytes -= offsets[_EMBEDDING][1]

    config = json.loads((model / "config.json").read_bytes())
    idle = _idle_share(config)
    experts = [name for name in offsets if _EXPERTS in name]
    nbytes -= round(idle * sum(offsets[name][1] for name in experts))
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_rows = 2 * config["num_hidden_layers"] * config["num_key_value_heads"]
    kind = quantization_named(quantization)
    blocks = (
        math.prod(param["shape"]) * (1 - idle if _EXPERTS in param["name"] else 1)
        for param in index["params"]
        if param["kind"] == "matrix" and param["name"] not in (_EMBEDDING, _HEAD)
    )
    return ModelCosts(
        weight_bytes=nbytes,
        kv_bytes=kv_rows * kv_cache_of(kind, kv_cache_dtype).row_bytes(head_dim),
        block_parameters=round(sum(blocks)),
        is_q4=kind.matrix_format == "q4",
        has_experts=bool(experts),
    )


def share_of_limit(row: Row, rate: float, costs: ModelCosts, limits: MachineLimits) -> float | None:
    """The share that `rate` is of what memory, or for prompts arithmetic, would allow.

    None where the row has no such limit: a share of prefill is told for 4-bit weights only,
    which are multiplied as int8, and none of a batch whose rows go to experts of their own.
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


def _idle_share(config: Mapping[str, Any]) -> float:
    """The share of the experts that a token does not go to."""
    count = config.get("num_experts") or config.get("num_local_experts")
    return 1 - config["num_experts_per_tok"] / count if count else 0.0


def _packed(model: Path, quantization: str) -> tuple[dict[str, Any], int]:
    """The newest entry of the weights' cache for a model: its index and its size."""
    matrix_format = quantization_named(quantization).matrix_format
    folder = cache_home() / "weights"
    paths = sorted(folder.glob("*/index.json"), key=lambda path: path.stat().st_mtime)
    for path in reversed(paths):
        index: dict[str, Any] = json.loads(path.read_bytes())
        formats = {param["format"] for param in index["params"] if param["kind"] == "matrix"}
        if index["model"] == str(model.resolve()) and matrix_format in formats:
            return index, (path.parent / "params.bin").stat().st_size

    raise UnavailableError(f"{folder} has no packed weights of {model} as {quantization}")
