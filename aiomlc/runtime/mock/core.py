"""A core without a model: it says what a script says."""

from __future__ import annotations

__all__ = ("FakeCore",)

import math
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, final

from aiomlc.errors import EngineClosedError, EngineDeadError, EngineOverloadedError
from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record, TokenLogprob
from aiomlc.runtime.engine.logits_processors import LogitsProcessors
from aiomlc.runtime.engine.trace import EventKind, TraceEvent
from aiomlc.sampling_params import SequenceOptions

_TOTAL_PAGES = 64
_VOCAB_SIZE = 256  # Token i is byte i.
_REASONS = (None, "stop", "length", "abort", "error", "timeout")


@dataclass(slots=True)
class _Sequence:
    reply: str
    options: SequenceOptions
    num_prompt: int
    num_done: int = 0


@final
class FakeCore:
    """A core that answers from a script, one character per token and step.

    It keeps the contract of the native core: a thread of its own runs it, and a file descriptor
    is readable while records wait. The n-th request gets the n-th reply, over and over; each
    live sequence holds one page. No option changes what the script says; log-probabilities, if
    asked for, are made up: each token had one half, its successors a quarter, an eighth and so on.
    Logits processors are called, with zeros, and change nothing unless they raise.

    Args:
        replies: What the sequences say; or a function of a prompt's ids.
        hand_stepped: `run` takes only the steps that `allow` grants, so that a test decides when
            the engine moves.
        failures: By sequence id (the first is 1): the message that request fails with, alone.
        timeouts: By sequence id: the limit of its own that ends it after one character.
        max_live: Sequences that may live at once; one more is refused.
        dies_at_step: The step, from 1, at which the whole engine fails.
    """

    def __init__(
        self,
        replies: Sequence[str] | Callable[[Sequence[int]], str] = ("Hello!",),
        *,
        hand_stepped: bool = False,
        failures: Mapping[int, str] | None = None,
        timeouts: Mapping[int, str] | None = None,
        max_live: int | None = None,
        dies_at_step: int | None = None,
    ) -> None:
        self.prompts: list[list[int]] = []
        self.options: list[SequenceOptions] = []
        self.cancelled: list[int] = []  #: Every id that `cancel` was called with.
        self.paused: list[int] = []  #: Every id that `pause` was called with.
        self.resumed: list[int] = []  #: Every id that `resume` was called with.
        self.pinned: set[int] = set()  #: Sequences that ended well and were to be pinned.
        self.is_running: bool = False  #: A thread is inside `run`.
        self.is_closed: bool = False
        self.is_released: bool = False
        self._replies = replies
        self._failures = dict(failures or {})
        self._timeouts = dict(timeouts or {})
        self._max_live = max_live
        self._held: set[int] = set()  # Paused.
        self._dies_at_step = dies_at_step
        self._grants = 0 if hand_stepped else None
        self._changed = threading.Condition()
        self._live: dict[int, _Sequence] = {}
        self._doomed: set[int] = set()
        self._outbox: list[Record] = []
        self._stopping = False
        self._failure = ""
        self._steps = 0
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._trace: list[TraceEvent] | None = None
        self.wake_fd: int
        self.wake_fd, self._wake_writer = os.pipe()
        weakref.finalize(self, _close_all, self.wake_fd, self._wake_writer)

    def submit(self, prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        """Queue a prompt; returns the id of its sequence."""
        with self._changed:
            if self.is_closed:
                raise EngineClosedError("the core is closed")

            if self._max_live is not None and len(self._live) >= self._max_live:
                raise EngineOverloadedError(f"{self._max_live} sequences run or wait")

            self.prompts.append(list(prompt_ids))
            self.options.append(options)
            sequence_id = len(self.prompts)
            self._live[sequence_id] = _Sequence(
                self._reply(sequence_id, prompt_ids), options, len(prompt_ids)
            )
            self._record("submitted", sequence_id, len(prompt_ids))
            self._changed.notify_all()
            return sequence_id

    def cancel(self, sequence_id: int) -> None:
        """End a sequence at the next step; an unknown id does nothing."""
        with self._changed:
            self.cancelled.append(sequence_id)
            if sequence_id in self._live:
                self._doomed.add(sequence_id)
                self._changed.notify_all()

    def pause(self, sequence_id: int) -> None:
        """Give a sequence no more characters until `resume`."""
        with self._changed:
            self.paused.append(sequence_id)
            self._held.add(sequence_id)

    def resume(self, sequence_id: int) -> None:
        """Let a paused sequence go on."""
        with self._changed:
            self.resumed.append(sequence_id)
            self._held.discard(sequence_id)
            self._changed.notify_all()

    def unpin(self, sequence_id: int) -> None:
        """Let go of a pinned sequence; an unknown id does nothing."""
        with self._changed:
            self.pinned.discard(sequence_id)

    def reset(self) -> None:
        """Forget what is pinned and set the counters to 0."""
        with self._changed:
            self.pinned.clear()
            self._steps = self._prompt_tokens = self._completion_tokens = 0

    def run(self) -> None:
        """Step until `stop` is called."""
        with self._changed:
            self.is_running = True

        try:
            while self._wait_for_work():
                self.step()
        finally:
            with self._changed:
                self.is_running = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Make `run` return after the step it is in."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def close(self) -> None:
        """End every sequence and free its page."""
        with self._changed:
            self.is_closed = True
            self._live.clear()

    def release(self) -> None:
        """Nothing to free before the double itself is collected."""
        self.is_released = True

    def step(self) -> bool:
        """Give every live sequence one character; false when there is none."""
        with self._changed:
            moving = [number for number in self._live if number not in self._held | self._doomed]
            moving += [number for number in self._live if number in self._doomed]
            if not moving:
                return False

            self._steps += 1
            if self._steps == self._dies_at_step:
                self._die()

            rows = len(self._live)
            records = [self._advance(sequence_id) for sequence_id in sorted(moving)]
            free_pages = _TOTAL_PAGES - len(self._live)
            self._record("step", -1, rows, 0, rows, len(self._live), 0, free_pages)
            self._post(records)
            return True

    def drain(self) -> list[Record]:
        """Everything since the last call."""
        with self._changed:
            if self._outbox:
                os.read(self.wake_fd, 1)

            records, self._outbox = self._outbox, []
            return records

    def failure(self) -> str:
        """Why the engine is dead; empty while it is not."""
        return self._failure

    def statistics(self) -> CoreStatistics:
        """A snapshot of the counters."""
        with self._changed:
            return CoreStatistics(
                num_running=len(self._live),
                num_waiting=0,
                total_pages=_TOTAL_PAGES,
                free_pages=_TOTAL_PAGES - len(self._live),
                num_recycling=0,
                num_pinned=len(self.pinned),
                prompt_tokens=self._prompt_tokens,
                completion_tokens=self._completion_tokens,
                steps=self._steps,
                prefix_cache_hits=0,
                cached_tokens=0,
                prefill_tokens=self._prompt_tokens,
                decode_tokens=self._completion_tokens,
                prefill_seconds=0.5 * self._steps,
                decode_seconds=0.5 * self._steps,
            )

    def enable_trace(self) -> None:
        """Record submissions, ends and steps from now on. The clock counts events."""
        with self._changed:
            self._trace = self._trace or []

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """The recorded events from a number on, and the number of the first of them."""
        with self._changed:
            events = self._trace or []
            return min(start, len(events)), events[start:]

    def allow(self, num_steps: int) -> None:
        """Grant steps to a hand-stepped core."""
        with self._changed:
            assert self._grants is not None, "the core is not hand-stepped"
            self._grants += num_steps
            self._changed.notify_all()

    def wait_until_stopped(self, timeout: float = 5) -> bool:
        """Block until no thread is inside `run`; false if that takes longer than `timeout`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.is_running, timeout)

    def _reply(self, sequence_id: int, prompt_ids: Sequence[int]) -> str:
        if callable(self._replies):
            return self._replies(prompt_ids)

        return self._replies[(sequence_id - 1) % len(self._replies)]

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._can_step())
            if self._stopping:
                return False

            if self._grants:
                self._grants -= 1

            return True

    def _can_step(self) -> bool:
        # Cancelling needs no grant: the native core does it between steps, too.
        if self._live.keys() <= self._held and not self._doomed:
            return False

        return self._grants is None or self._grants > 0 or self._is_doomed()

    def _is_doomed(self) -> bool:
        return self._doomed.issuperset(self._live)

    def _advance(self, sequence_id: int) -> Record:
        sequence = self._live[sequence_id]
        text, finish_reason, error = "", None, self._failures.get(sequence_id)
        prompt: tuple[TokenLogprob, ...] = ()
        if sequence_id in self._doomed:
            finish_reason, error = "abort", None
        elif error is not None:
            finish_reason = "error"
        elif not self._process(sequence_id, sequence):
            finish_reason, error = "error", "a logits processor failed"
        elif sequence.num_done == 1 and sequence_id in self._timeouts:
            finish_reason, error = "timeout", self._timeouts[sequence_id]
        else:
            prompt = self._prompt_logprobs(sequence_id, sequence)
            text, finish_reason = self._next_character(sequence)

        if finish_reason is not None:
            del self._live[sequence_id]
            if sequence.options.is_pinned and finish_reason in ("stop", "length"):
                self.pinned.add(sequence_id)

            self._doomed.discard(sequence_id)
            reason = _REASONS.index(finish_reason)
            self._record("ended", sequence_id, reason, sequence.num_done)

        return Record(
            sequence_id,
            text,
            tuple(map(ord, text)),
            finish_reason,
            error,
            sequence.num_prompt,
            sequence.num_done,
            logprobs=self._logprobs(sequence, text),
            prompt_logprobs=prompt,
        )

    def _record(self, kind: EventKind, sequence_id: int, *values: int) -> None:
        if self._trace is not None:
            self._trace.append(TraceEvent(kind, sequence_id, 1000 * len(self._trace), 0, values))

    def _logprobs(self, sequence: _Sequence, text: str) -> tuple[TokenLogprob, ...]:
        num_top = sequence.options.top_logprobs
        return () if num_top is None else tuple(_made_up(ord(each), num_top) for each in text)

    def _process(self, sequence_id: int, sequence: _Sequence) -> bool:
        processors = sequence.options.logits_processors
        if not isinstance(processors, LogitsProcessors):
            return True

        import numpy as np

        said = map(ord, sequence.reply[: sequence.num_done])
        token_ids = (*self.prompts[sequence_id - 1], *said)
        return processors.run(token_ids, np.zeros(_VOCAB_SIZE, np.float32))

    def _prompt_logprobs(self, sequence_id: int, sequence: _Sequence) -> tuple[TokenLogprob, ...]:
        num_top = sequence.options.prompt_logprobs
        if num_top is None or sequence.num_done > 0:
            return ()

        return tuple(_made_up(each, num_top) for each in self.prompts[sequence_id - 1][1:])

    def _die(self) -> NoReturn:
        self._failure = "the script says so"
        self._failures = dict.fromkeys(self._live, self._failure)
        self._post([self._advance(sequence_id) for sequence_id in list(self._live)])
        raise EngineDeadError(self._failure)

    def _next_character(self, sequence: _Sequence) -> tuple[str, str | None]:
        if sequence.num_done == 0:
            self._prompt_tokens += sequence.num_prompt

        if sequence.num_done >= len(sequence.reply):
            return "", "stop"

        text = sequence.reply[sequence.num_done]
        sequence.num_done += 1
        self._completion_tokens += 1
        limit = sequence.options.max_tokens
        return text, "length" if limit is not None and sequence.num_done >= limit else None

    def _post(self, records: list[Record]) -> None:
        if not self._outbox:
            os.write(self._wake_writer, b"!")

        self._outbox += records


def _made_up(token_id: int, num_top: int) -> TokenLogprob:
    half = math.log(0.5)
    top = tuple(((token_id + index) % _VOCAB_SIZE, half * (index + 1)) for index in range(num_top))
    return TokenLogprob(token_id, half, top)


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
