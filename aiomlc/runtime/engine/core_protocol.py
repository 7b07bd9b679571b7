"""The native core as the runtime sees it: a Protocol, so that a double can take its place."""

from __future__ import annotations

__all__ = ("Core", "CoreStatistics", "Record", "TokenLogprob")

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

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
    """How likely a token was in its place, before any bias, penalty, temperature or filter.

    Natural logarithms; what is below -9999 is reported as that.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  #: Token ids and logprobs, the most likely first.


class Record(NamedTuple):
    """What one step did for one sequence. A record with a finish reason is its last."""

    sequence_id: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None  #: "stop", "length", "abort", "error" or "timeout".
    error: str | None  #: Why, for "error"; which limit, for "timeout".
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  #: Prompt tokens that were in the KV cache already.
    logprobs: tuple[TokenLogprob, ...] = ()  #: One for each of `token_ids`, if asked for.
    timing: RequestTiming | None = None  #: In the last record.
    #: Of each prompt token but the first, if asked for: with the first token of the answer.
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CoreStatistics:
    """A snapshot of the core's counters.

    Times are in seconds. The histograms of whole requests leave out those that were aborted or
    failed.
    """

    num_running: int  #: Sequences with a row.
    num_waiting: int  #: Sequences that wait for a row or for pages.
    total_pages: int
    #: Those that no sequence and no pin holds; the prefix cache gives its own up on demand.
    free_pages: int
    num_recycling: int  #: Ended sequences in the prefix cache that give way on demand.
    prompt_tokens: int
    completion_tokens: int
    steps: int
    prefix_cache_hits: int  #: Sequences that started with computed tokens of another.
    cached_tokens: int  #: Tokens that they did not have to compute.
    prefill_tokens: int
    decode_tokens: int
    prefill_seconds: float
    decode_seconds: float
    num_pinned: int = 0  #: Pinned prefixes.
    num_paused: int = 0  #: Sequences that wait for their readers.
    preemptions: int = 0  #: How often a sequence lost its room in the KV cache to others.
    finished: Mapping[str, int] = field(default_factory=dict)  #: Sequences by finish reason.
    #: Steps that only decoded, without guesses, by batch size, where there were any; up to 64.
    decode_steps: Mapping[int, DecodeSteps] = field(default_factory=dict)
    last_finished: FinishedRequest | None = None
    queue_seconds: Histogram = NO_VALUES  #: From submission to room in the KV cache.
    first_token_seconds: Histogram = NO_VALUES  #: From submission to the first token.
    inter_token_seconds: Histogram = NO_VALUES  #: Between two tokens of a sequence.
    request_seconds: Histogram = NO_VALUES  #: From submission to the end of the answer.
    request_prompt_tokens: Histogram = NO_VALUES
    request_completion_tokens: Histogram = NO_VALUES
    batch_size: Histogram = NO_VALUES  #: Rows of a step.
    draft_tokens: int = 0  #: Guessed tokens that were computed.
    accepted_tokens: int = 0  #: Those of them that were right.
    forced_tokens: int = 0  #: Completion tokens that a grammar forced, which nothing sampled.
    forced_seconds: float = 0.0  #: Time to find them, without that of computing them.
    verified_drafts: int = 0  #: Guesses at the next tokens of a sequence that were verified.
    draft_positions: tuple[
        DraftPosition, ...
    ] = ()  #: Of the first, second and so on guessed token.
    #: Steps with guesses that only decoded, by their tokens; without the time of guessing.
    verify_steps: Mapping[int, DecodeSteps] = field(default_factory=dict)
    #: The time of guessing in a step, by the sequences it was for.
    draft_steps: Mapping[int, DecodeSteps] = field(default_factory=dict)
    draft_failures: int = 0  #: How often guessing failed, for a sequence or for all.
    speculation_failure: str | None = None  #: Why there are no guesses any more, until a reload.


class Core(Protocol):
    """One model's native engine. All but `run` and `step` return at once, from any thread."""

    wake_fd: int  #: Readable while the outbox is not empty; open as long as this object lives.

    def submit(self, prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        """Queue a prompt; returns the core's id of the new sequence.

        Raises:
            RequestError: the sequence can never be served.
            EngineClosedError: the core was closed.
        """

    def cancel(self, sequence_id: int) -> None:
        """End a sequence; an unknown or finished id does nothing."""

    def pause(self, sequence_id: int) -> None:
        """Give up a sequence's row until `resume`; an unknown or finished id does nothing."""

    def resume(self, sequence_id: int) -> None:
        """Let a paused sequence go on."""

    def unpin(self, sequence_id: int) -> None:
        """Let go of what a pinned sequence left; an unknown id does nothing."""

    def reset(self) -> None:
        """Empty the prefix cache and set the counters to 0, after the cancellations so far."""

    def run(self) -> None:
        """Step until `stop` is called.

        Raises:
            EngineDeadError: the model failed.
        """

    def stop(self) -> None:
        """Make `run` return after the step it is in; also if it has not begun."""

    def close(self) -> None:
        """End every sequence and free its pages. Called when `run` has returned.

        Raises:
            EngineDeadError: the model failed to free a page; all else is done then.
        """

    def release(self) -> None:
        """Free the model and the wake fd, which nobody may be waiting on any more.

        Afterwards `submit` raises EngineClosedError, and the others do nothing.
        """

    def step(self) -> bool:
        """Run one step by hand; false when there was nothing to do."""

    def drain(self) -> list[Record]:
        """Everything since the last call; the wake fd is not readable afterwards."""

    def failure(self) -> str:
        """Why the engine is dead, empty while it is not; known before its error records are."""

    def statistics(self) -> CoreStatistics:
        """A snapshot of the counters."""

    def enable_trace(self) -> None:
        """Record events from now on; the oldest are forgotten."""

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """The recorded events from a number on, and the number of the first of them.

        Events are numbered from 0; past the end there are none, and the number is the next one's.
        """
