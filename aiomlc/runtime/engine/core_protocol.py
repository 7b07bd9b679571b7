"""The protocol of the native core, which the mock implements as well."""

from __future__ import annotations

__all__ = ("Core", "CoreStatistics", "Record", "TokenLogprob")

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.statistics import (
    NO_VALUES,
    DecodeSteps,
    DraftPosition,
    FinishedRequest,
    Histogram,
    RequestTiming,
)
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.sampling_params import SequenceOptions


class TokenLogprob(NamedTuple):
    """The natural log-probability of a token, before any bias, penalty, temperature or filter.

    Values below -9999 are reported as -9999.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  #: Token ids and log-probabilities, the most likely first.


class Record(NamedTuple):
    """The output of a sequence since its previous record; the last one has a finish reason."""

    sequence_id: int
    text: str
    token_ids: tuple[int, ...]  #: As many as `completion_tokens` counts, the stop token included.
    finish_reason: str | None  #: "stop", "length", "abort", "error" or "timeout".
    error: str | None  #: The cause of "error"; the limit of "timeout".
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  #: Prompt tokens from the prefix cache.
    logprobs: Sequence[TokenLogprob] = ()  #: One for each of `token_ids`, if requested.
    timing: RequestTiming | None = None  #: In the last record.
    #: One for each prompt token but the first, if requested; in the first record.
    prompt_logprobs: Sequence[TokenLogprob] = ()


@dataclass(frozen=True, slots=True)
class CoreStatistics:
    """A snapshot of the core's counters.

    Times are in seconds. The histograms of requests exclude those that were aborted or failed.
    """

    num_running: int  #: Scheduled sequences.
    num_waiting: int  #: Sequences that wait to be scheduled.
    total_pages: int
    #: Pages for new tokens, including the prefix cache's pages that can be evicted.
    free_pages: int
    num_recycling: int  #: Ended sequences in the prefix cache that can be evicted.
    prompt_tokens: int
    completion_tokens: int
    steps: int
    prefix_cache_hits: int  #: Sequences that started from cached tokens.
    cached_tokens: int  #: Prompt tokens from the prefix cache.
    prefill_tokens: int
    decode_tokens: int
    prefill_seconds: float
    decode_seconds: float
    total_slots: int = 0  #: Slots for recurrent states; 0 for a model without recurrent layers.
    free_slots: int = 0  #: Slots for new sequences, counted as `free_pages`.
    num_pinned: int = 0  #: Pinned prefixes.
    num_paused: int = 0  #: Sequences that are paused because their readers are slow.
    preemptions: int = 0  #: Preemptions of sequences.
    finished: Mapping[str, int] = field(default_factory=dict)  #: Sequences by finish reason.
    #: Steps with only decodes and no drafts, by batch size from 1 to 64; without empty entries.
    decode_steps: Mapping[int, DecodeSteps] = field(default_factory=dict)
    last_finished: FinishedRequest | None = None
    queue_seconds: Histogram = NO_VALUES  #: From submission to the first step.
    first_token_seconds: Histogram = NO_VALUES  #: From submission to the first token.
    inter_token_seconds: Histogram = NO_VALUES  #: Between two tokens of a sequence.
    request_seconds: Histogram = NO_VALUES  #: From submission to the end.
    request_prompt_tokens: Histogram = NO_VALUES
    request_completion_tokens: Histogram = NO_VALUES
    batch_size: Histogram = NO_VALUES  #: Sequences of a step.
    draft_tokens: int = 0  #: Draft tokens that were verified.
    accepted_tokens: int = 0  #: Draft tokens that were accepted.
    forced_tokens: int = 0  #: Completion tokens that a grammar forced.
    forced_seconds: float = 0.0  #: The time spent on finding them.
    verified_drafts: int = 0  #: Drafts that were verified.
    #: Counts for the first draft token of a draft, the second and so on.
    draft_positions: tuple[DraftPosition, ...] = ()
    #: Steps with only decodes and with drafts, by their tokens; without the time of drafting.
    verify_steps: Mapping[int, DecodeSteps] = field(default_factory=dict)
    #: The time of drafting in a step, by the number of sequences with drafts.
    draft_steps: Mapping[int, DecodeSteps] = field(default_factory=dict)
    draft_failures: int = 0  #: Failures of drafting, for a sequence or for all.
    #: Why drafting is disabled until a reload; None if drafting is not disabled.
    speculation_failure: str | None = None


class Core(Protocol):
    """The engine of one model. All methods except `run` and `step` are thread-safe and fast."""

    wake_fd: int  #: Readable while there are records to drain; open as long as this object lives.

    def submit(self, prompt: Prompt, options: SequenceOptions) -> int:
        """Queue a prompt; return the id of the new sequence.

        Raises:
            RequestError: If the sequence can never be served.
            EngineClosedError: If the core was closed.
        """
        ...

    def cancel(self, sequence_id: int) -> None:
        """Cancel a sequence; no effect on an unknown or finished one."""
        ...

    def pause(self, sequence_id: int) -> None:
        """Stop scheduling a sequence until `resume`; no effect on an unknown or finished one."""
        ...

    def resume(self, sequence_id: int) -> None:
        """Schedule a paused sequence again."""
        ...

    def unpin(self, sequence_id: int) -> None:
        """Let the prefix cache evict a pinned sequence; no effect on an unknown one."""
        ...

    def reset(self) -> None:
        """Empty the prefix cache and set the counters to 0, once earlier cancellations are done."""
        ...

    def run(self) -> None:
        """Step until `stop` is called.

        Raises:
            EngineDeadError: If the model failed.
        """
        ...

    def stop(self) -> None:
        """Make `run` return after the current step, or immediately if it has not started."""
        ...

    def close(self) -> None:
        """Cancel every sequence and free its pages. Must be called after `run` has returned.

        Raises:
            EngineDeadError: If the model failed to free a page; the rest is done.
        """
        ...

    def release(self) -> None:
        """Free the model and the wake fd, which must not be waited on any more.

        Afterwards `submit` raises EngineClosedError, and the other methods have no effect.
        """
        ...

    def step(self) -> bool:
        """Run one step; return False if there was nothing to do."""
        ...

    def drain(self) -> list[Record]:
        """Return the records since the last call; the wake fd is not readable afterwards."""
        ...

    def failure(self) -> str:
        """Return why the engine is dead; "" if it is not. Set before the error records."""
        ...

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the counters."""
        ...

    def enable_trace(self) -> None:
        """Record events from now on, in a buffer that drops the oldest."""
        ...

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """Return the events from number `start` on, and the number of the first of them.

        Events are numbered from 0. If `start` is past the end, there are none, and the
        number is that of the next event.
        """
        ...
