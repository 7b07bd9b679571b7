"""Batch size, token budget and KV cache size of an engine, from its mode and configuration."""

from __future__ import annotations

__all__ = (
    "ServingLimits",
    "StepSizes",
    "check_encoder",
    "sequence_length",
    "serving_limits",
    "step_sizes",
)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiomlc.config import PAGE_SIZE, EngineConfig, Mode
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.native.recurrent_slots import plan_slots

# `local` suits a laptop; memory depends on the KV cache pages, hardly on the rows.
_MAX_SEQUENCES: dict[Mode, int] = {"local": 32, "interactive": 1, "server": 128}
_LOCAL_TOTAL_TOKENS = 16384
_PREFILL_CHUNK = 512
_STEP_BUDGET = 128
_IDLE_STEP_BUDGET = 256  # More would gain little, and delay the sequences that arrive meanwhile.
_MIN_TOTAL_TOKENS = 2 * PAGE_SIZE
_NO_LIMIT = 2**31 - 1
_OF_TOWERS: Final = "vision_quantization"
# The settings of what an encoder lacks, and their values that ask for nothing.
_OF_DECODERS: Mapping[str, tuple[object, ...]] = {
    "attention_sink_size": (None, -1, 0),
    "gpu_memory_utilization": (None,),
    "kv_cache_dtype": ("auto",),
    "max_history_size": (None, 0),
    "max_num_sequence": (None,),
    "max_queue_size": (EngineConfig().max_queue_size,),
    "max_total_sequence_length": (None,),
    "max_unread_tokens": (EngineConfig().max_unread_tokens,),
    "prefill_chunk_size": (None,),
    "prefill_mode": ("hybrid",),
    "prefix_cache_max_num_recycling_seqs": (None, 0),
    "prefix_cache_mode": ("radix", "disable"),
    "sliding_window_size": (None, -1, 0),
    "speculative_mode": ("disable",),
    "split_special_tokens": (False,),
    "step_token_budget": (None,),
    "tensor_parallel_shards": (None, 1),
    _OF_TOWERS: (None,),
}


@dataclass(frozen=True, slots=True)
class StepSizes:
    """Limits of one step, which depend on the configuration and not on the memory."""

    max_batch_size: int
    prefill_chunk_size: int
    step_token_budget: int
    idle_step_token_budget: int  #: While one sequence runs and none waits.


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Rows and KV cache tokens that an engine reserves memory for."""

    max_batch_size: int
    context_window: int  #: Tokens of one sequence.
    max_total_tokens: int  #: Tokens of all sequences; a multiple of the page size.
    prefill_chunk_size: int
    step_token_budget: int
    idle_step_token_budget: int
    max_recycling_sequences: (
        int  #: Finished sequences in the prefix cache; -1 for no limit, 0 if off.
    )
    max_queue_size: int  #: Sequences that may wait.
    num_slots: int = 0  #: Recurrent states; 0 for a model without recurrent layers.


def step_sizes(config: EngineConfig, *, mode: Mode, context_window: int) -> StepSizes:
    """Return the limits of a step; values in `config` take precedence over the mode's defaults.

    A default adapts to the values that are given, and none of these is lowered.

    Raises:
        BadRequestError: If a given size exceeds another one or the model's context length.
    """
    single = sequence_length(config, context_window)
    chunk, budget = config.prefill_chunk_size, config.step_token_budget
    drafted = 0 if config.speculative_mode == "disable" else config.spec_draft_length + 1
    rows = config.max_num_sequence or min(
        _MAX_SEQUENCES[mode], chunk or _NO_LIMIT, budget or _NO_LIMIT
    )
    chunk = chunk or max(rows, budget or drafted, min(_PREFILL_CHUNK, single))
    # Drafts are verified within the budget of a step.
    idle = 0 if budget or drafted else min(chunk, _IDLE_STEP_BUDGET)
    budget = budget or max(rows, min(chunk, max(_STEP_BUDGET, drafted)))
    _require_at_most("max_num_sequence", rows, "prefill_chunk_size", chunk)
    _require_at_most("max_num_sequence", rows, "step_token_budget", budget)
    _require_at_most("step_token_budget", budget, "prefill_chunk_size", chunk)
    _require_at_most("spec_draft_length", drafted - 1, "step_token_budget - 1", budget - 1)
    return StepSizes(rows, chunk, budget, max(budget, idle))


def sequence_length(config: EngineConfig, context_window: int) -> int:
    """Return the most tokens of one sequence, before the memory is considered.

    Raises:
        BadRequestError: If the configuration has more than the model's context length, or than
            the KV cache is to hold.
    """
    name = "max_single_sequence_length"
    single = config.max_single_sequence_length or context_window
    _require_at_most(name, single, "the model's context length", context_window)
    if config.max_single_sequence_length and config.max_total_sequence_length:
        total = config.max_total_sequence_length
        _require_at_most(name, single, "max_total_sequence_length", total)

    return single


def check_encoder(config: EngineConfig, positions: int, *, has_tower: bool = False) -> None:
    """Require that a configuration suits an encoder with this number of positions.

    Args:
        config: The configuration.
        positions: The most tokens of an input.
        has_tower: Whether the model embeds images, too.

    Raises:
        BadRequestError: If it sets what only decoders have, or a longer sequence; `param` names
            the field.
    """
    for name, unused in _OF_DECODERS.items():
        value = getattr(config, name)
        if value not in unused and not (has_tower and name == _OF_TOWERS):
            raise BadRequestError(
                f"engine_config.{name} = {value!r} is only supported by decoders: leave it out",
                param=name,
            )

    sequence_length(config, positions)


def _require_at_most(name: str, value: int, limit_name: str, limit: int) -> None:
    if value > limit:
        raise BadRequestError(
            f"{name} must be <= {limit_name} ({limit}), got {value}: lower it, or leave it out",
            param=name,
        )


def serving_limits(
    config: EngineConfig,
    *,
    mode: Mode,
    context_window: int,
    kv_bytes_per_token: int,
    memory_bytes: int,
    slot_bytes: int = 0,
) -> ServingLimits:
    """Return rows and KV cache size; values in `config` take precedence over the mode's defaults.

    `local` serves up to 32 sequences with 16,384 tokens in total (or one full context),
    `interactive` one sequence, `server` 128 sequences with all tokens that `memory_bytes` holds.
    Rows take little memory, so `local` admits more than the four of MLC LLM.

    Raises:
        BadRequestError: As `step_sizes`.
        ModelLoadError: If `memory_bytes` does not hold the tokens.
    """
    sizes = step_sizes(config, mode=mode, context_window=context_window)
    rows = sizes.max_batch_size
    single = sequence_length(config, context_window)
    num_slots = plan_slots(slot_bytes, rows, single, memory_bytes)
    kv_bytes = max(0, memory_bytes - num_slots * slot_bytes)
    total = _total_tokens(config, mode, rows, single, kv_bytes // max(1, kv_bytes_per_token))
    return ServingLimits(
        max_batch_size=rows,
        context_window=min(single, total),
        max_total_tokens=total,
        prefill_chunk_size=sizes.prefill_chunk_size,
        step_token_budget=sizes.step_token_budget,
        idle_step_token_budget=sizes.idle_step_token_budget,
        max_recycling_sequences=_max_recycling(config, rows),
        max_queue_size=_NO_LIMIT if config.max_queue_size is None else config.max_queue_size,
        num_slots=num_slots,
    )


def _total_tokens(config: EngineConfig, mode: Mode, rows: int, single: int, capacity: int) -> int:
    requested = (
        config.max_total_sequence_length
        or {
            "local": min(rows * single, max(single, _LOCAL_TOTAL_TOKENS)),
            "interactive": rows * single,
            "server": rows * single,
        }[mode]
    )
    pages, max_pages = -(-requested // PAGE_SIZE), capacity // PAGE_SIZE
    # A configured size must fit; a default size shrinks to the capacity.
    least = config.max_total_sequence_length or max(
        _MIN_TOTAL_TOKENS, config.max_single_sequence_length or 0
    )
    if max_pages * PAGE_SIZE < least:
        raise ModelLoadError(
            f"the KV cache needs {requested} tokens, but the memory holds {capacity}: lower "
            "max_total_sequence_length, max_num_sequence or max_single_sequence_length",
            field="max_total_sequence_length",
        )

    return max(1, min(pages, max_pages)) * PAGE_SIZE


def _max_recycling(config: EngineConfig, rows: int) -> int:
    if config.prefix_cache_mode == "disable":
        return 0

    max_recycling = config.prefix_cache_max_num_recycling_seqs
    return rows if max_recycling is None else max_recycling
