"""How many sequences and tokens an engine serves at once, by its mode and its configuration."""

from __future__ import annotations

__all__ = ("ServingLimits", "StepSizes", "serving_limits", "step_sizes")

from dataclasses import dataclass

from aiomlc.config import PAGE_SIZE, EngineConfig, Mode
from aiomlc.errors import BadRequestError, ModelLoadError

# A laptop's worth of concurrency: the pages, not the rows, are what costs memory.
_MAX_SEQUENCES: dict[Mode, int] = {"local": 32, "interactive": 1, "server": 128}
_LOCAL_TOTAL_TOKENS = 16384
_PREFILL_CHUNK = 512
_STEP_BUDGET = 128
_MIN_TOTAL_TOKENS = 2 * PAGE_SIZE
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StepSizes:
    """What one step can take. It depends on the configuration alone, not on the memory."""

    max_batch_size: int
    prefill_chunk_size: int
    step_token_budget: int


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """What an engine reserves for: rows, and tokens in the KV cache."""

    max_batch_size: int
    context_window: int  #: Tokens of one sequence.
    max_total_tokens: int  #: Tokens of all sequences; a multiple of the page size.
    prefill_chunk_size: int
    step_token_budget: int
    max_recycling_sequences: int  #: Ended ones in the prefix cache; -1 is no limit, 0 is off.
    max_queue_size: int  #: Sequences that may wait.


def step_sizes(config: EngineConfig, *, mode: Mode, context_window: int) -> StepSizes:
    """Rows and tokens of a step; the configuration's own values come first.

    Raises:
        BadRequestError: a forward pass would not hold a token of every row.
    """
    single = min(context_window, config.max_single_sequence_length or context_window)
    rows = config.max_num_sequence or _MAX_SEQUENCES[mode]
    chunk = config.prefill_chunk_size or max(rows, min(_PREFILL_CHUNK, single))
    budget = config.step_token_budget or max(rows, min(_STEP_BUDGET, chunk))
    if chunk < rows:
        raise BadRequestError(
            f"prefill_chunk_size is {chunk}, below max_num_sequence {rows}",
            param="prefill_chunk_size",
        )

    return StepSizes(rows, chunk, min(budget, chunk))


def serving_limits(
    config: EngineConfig,
    *,
    mode: Mode,
    context_window: int,
    kv_bytes_per_token: int,
    memory_bytes: int,
) -> ServingLimits:
    """Plan rows and KV cache for a model; the configuration's own values come first.

    `local` serves up to 32 sequences that share 16,384 tokens (or one full context), `interactive`
    one sequence, `server` 128 sequences with all the tokens that `memory_bytes` holds. Rows are
    cheap here, so `local` admits more than upstream's four.

    Raises:
        ModelLoadError: the memory does not hold the tokens.
    """
    sizes = step_sizes(config, mode=mode, context_window=context_window)
    rows = sizes.max_batch_size
    single = min(context_window, config.max_single_sequence_length or context_window)
    total = _total_tokens(config, mode, rows, single, memory_bytes // max(1, kv_bytes_per_token))
    return ServingLimits(
        max_batch_size=rows,
        context_window=min(single, total),
        max_total_tokens=total,
        prefill_chunk_size=sizes.prefill_chunk_size,
        step_token_budget=sizes.step_token_budget,
        max_recycling_sequences=_max_recycling(config, rows),
        max_queue_size=_NO_LIMIT if config.max_queue_size is None else config.max_queue_size,
    )


def _total_tokens(config: EngineConfig, mode: Mode, rows: int, single: int, capacity: int) -> int:
    wanted = (
        config.max_total_sequence_length
        or {
            "local": min(rows * single, max(single, _LOCAL_TOTAL_TOKENS)),
            "interactive": rows * single,
            "server": rows * single,
        }[mode]
    )
    # A size the user asked for must fit; a size we chose shrinks to what there is.
    too_much = capacity < (config.max_total_sequence_length or _MIN_TOTAL_TOKENS)
    if too_much:
        raise ModelLoadError(
            f"the KV cache needs {wanted} tokens, the memory holds {capacity}: lower "
            "max_total_sequence_length, max_num_sequence or max_single_sequence_length",
            field="max_total_sequence_length",
        )

    pages = -(-wanted // PAGE_SIZE)
    return max(1, min(pages, capacity // PAGE_SIZE)) * PAGE_SIZE


def _max_recycling(config: EngineConfig, rows: int) -> int:
    if config.prefix_cache_mode == "disable":
        return 0

    wanted = config.prefix_cache_max_num_recycling_seqs
    return rows if wanted is None else wanted
