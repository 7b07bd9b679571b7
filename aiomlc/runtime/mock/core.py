"""A core without a model, which generates scripted replies."""

from __future__ import annotations

__all__ = ("FakeCore",)

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, final

from aiomlc.errors import EngineClosedError, EngineDeadError, EngineOverloadedError
from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record, TokenLogprob
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.runtime.mock.outbox import RecordOutbox, StepTrace
from aiomlc.runtime.mock.scripted_sequence import ScriptedSequence
from aiomlc.sampling_params import SequenceOptions

_TOTAL_PAGES = 64
_REASONS = (None, "stop", "length", "abort", "error", "timeout")


@final
class FakeCore:
    """A core that generates scripted replies, one character for each token and step.

    It has the contract of the native core: the engine runs it in a worker thread, and a file
    descriptor is readable while records wait. The n-th request gets the n-th reply; after the
    last reply the first follows again. Each live sequence holds one page.

    Sampling options do not change the reply. Requested log-probabilities are invented: every
    token has probability 1/2, its successors 1/4, 1/8 and so on. Logits processors are called
    with zeros and have no effect unless they raise.

    Args:
        replies: The replies, or a function that returns the reply to a prompt's token ids.
        hand_stepped: Whether `run` takes only the steps that `allow` grants, so that a test
            controls the engine.
        failures: Error messages by sequence id (the first id is 1). Such a sequence fails at its
            first step.
        timeouts: Names of time limits by sequence id. Such a sequence times out after one
            character.
        max_live: The maximum number of live sequences; more are rejected. None for no limit.
        dies_at_step: The number of the step (from 1) at which the engine fails; None for never.
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
        self.prompts: list[list[int]] = []  #: The token ids of every submitted prompt.
        self.options: list[SequenceOptions] = []  #: The options of every submitted prompt.
        self.cancelled: list[int] = []  #: The ids passed to `cancel`.
        self.paused: list[int] = []  #: The ids passed to `pause`.
        self.resumed: list[int] = []  #: The ids passed to `resume`.
        self.pinned: set[int] = set()  #: Pinned sequences that finished with "stop" or "length".
        self.is_running: bool = False  #: Whether a thread is inside `run`.
        self.is_closed: bool = False
        self.is_released: bool = False
        self._replies = replies
        self._failures = dict(failures or {})
        self._timeouts = dict(timeouts or {})
        self._max_live = max_live
        self._dies_at_step = dies_at_step
        self._grants = 0 if hand_stepped else None
        self._changed = threading.Condition()
        self._live: dict[int, ScriptedSequence] = {}
        self._paused: set[int] = set()
        self._cancelling: set[int] = set()  # Cancelled sequences that end at the next step.
        self._is_stopping = False
        self._failure = ""
        self._steps = 0
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._trace = StepTrace()
        self._outbox = RecordOutbox()
        self.wake_fd: int = self._outbox.wake_fd

    def submit(self, prompt: Prompt, options: SequenceOptions) -> int:
        """Queue a prompt and return the id of its sequence.

        Raises:
            EngineClosedError: If the core is closed.
            EngineOverloadedError: If `max_live` sequences are live.
        """
        with self._changed:
            if self.is_closed:
                raise EngineClosedError("the core is closed")

            if self._max_live is not None and len(self._live) >= self._max_live:
                raise EngineOverloadedError(
                    f"{self._max_live} sequences are running or waiting, which is the limit"
                )

            prompt_ids = prompt.token_ids.tolist()
            self.prompts.append(prompt_ids)
            self.options.append(options)
            sequence_id = len(self.prompts)
            reply = self._reply(sequence_id, prompt_ids)
            self._live[sequence_id] = ScriptedSequence(prompt_ids, options, reply)
            self._trace.record("submitted", sequence_id, len(prompt_ids))
            self._changed.notify_all()
            return sequence_id

    def cancel(self, sequence_id: int) -> None:
        """End a sequence at the next step; an unknown id is ignored."""
        with self._changed:
            self.cancelled.append(sequence_id)
            if sequence_id in self._live:
                self._cancelling.add(sequence_id)
                self._changed.notify_all()

    def pause(self, sequence_id: int) -> None:
        """Generate no more characters of a sequence until `resume`."""
        with self._changed:
            self.paused.append(sequence_id)
            self._paused.add(sequence_id)

    def resume(self, sequence_id: int) -> None:
        """Continue a paused sequence."""
        with self._changed:
            self.resumed.append(sequence_id)
            self._paused.discard(sequence_id)
            self._changed.notify_all()

    def unpin(self, sequence_id: int) -> None:
        """Release a pinned sequence; an unknown id is ignored."""
        with self._changed:
            self.pinned.discard(sequence_id)

    def reset(self) -> None:
        """Release all pinned sequences and reset the counters to 0."""
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
        """Make `run` return after the current step."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def close(self) -> None:
        """End every sequence and free its page."""
        with self._changed:
            self.is_closed = True
            self._live.clear()

    def release(self) -> None:
        """Record the call; the descriptor stays open while this object exists."""
        self.is_released = True

    def step(self) -> bool:
        """Generate one character of every live sequence; return False if there is none."""
        with self._changed:
            active = [
                sequence_id
                for sequence_id in self._live
                if sequence_id not in self._paused or sequence_id in self._cancelling
            ]
            if not active:
                return False

            self._steps += 1
            if self._steps == self._dies_at_step:
                self._fail()

            rows = len(self._live)
            records = [self._advance(sequence_id) for sequence_id in active]
            free_pages = _TOTAL_PAGES - len(self._live)
            self._trace.record("step", -1, rows, 0, rows, len(self._live), 0, free_pages)
            self._outbox.post(records)
            return True

    def drain(self) -> list[Record]:
        """Return all records since the last call."""
        with self._changed:
            return self._outbox.drain()

    def failure(self) -> str:
        """Return why the engine failed; "" if it has not failed."""
        return self._failure

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the counters."""
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
            self._trace.enable()

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """Return the events from number `start`, and the number of the first of them."""
        with self._changed:
            return self._trace.read(start)

    def allow(self, num_steps: int) -> None:
        """Grant steps to a hand-stepped core."""
        with self._changed:
            assert self._grants is not None, "the core is not hand-stepped"
            self._grants += num_steps
            self._changed.notify_all()

    def wait_until_stopped(self, timeout: float = 5) -> bool:
        """Wait until no thread is inside `run`; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.is_running, timeout)

    def _reply(self, sequence_id: int, prompt_ids: Sequence[int]) -> str:
        if callable(self._replies):
            return self._replies(prompt_ids)

        return self._replies[(sequence_id - 1) % len(self._replies)]

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._can_step())
            if self._is_stopping:
                return False

            if self._grants:
                self._grants -= 1

            return True

    def _can_step(self) -> bool:
        if self._live.keys() <= self._paused and not self._cancelling:
            return False

        # Cancellation needs no grant, since the native core also cancels between steps.
        is_granted = self._grants is None or self._grants > 0
        return is_granted or self._cancelling.issuperset(self._live)

    def _advance(self, sequence_id: int) -> Record:
        """Generate the next character of a sequence; remove the sequence if that ends it."""
        sequence = self._live[sequence_id]
        text, finish_reason, error = "", None, self._failures.get(sequence_id)
        prompt_logprobs: tuple[TokenLogprob, ...] = ()
        if sequence_id in self._cancelling:
            finish_reason, error = "abort", None
        elif error is not None:
            finish_reason = "error"
        elif not sequence.run_logits_processors():
            finish_reason, error = "error", "a logits processor failed"
        elif sequence.num_generated == 1 and sequence_id in self._timeouts:
            finish_reason, error = "timeout", self._timeouts[sequence_id]
        else:
            if sequence.num_generated == 0:
                self._prompt_tokens += len(sequence.prompt_ids)

            prompt_logprobs = sequence.prompt_logprobs()
            text, finish_reason = sequence.next_token()
            self._completion_tokens += len(text)

        if finish_reason is not None:
            self._end(sequence_id, finish_reason)

        return Record(
            sequence_id,
            text,
            tuple(map(ord, text)),
            finish_reason,
            error,
            len(sequence.prompt_ids),
            sequence.num_generated,
            logprobs=sequence.logprobs(text),
            prompt_logprobs=prompt_logprobs,
        )

    def _end(self, sequence_id: int, finish_reason: str) -> None:
        sequence = self._live.pop(sequence_id)
        if sequence.options.is_pinned and finish_reason in ("stop", "length"):
            self.pinned.add(sequence_id)

        self._cancelling.discard(sequence_id)
        reason = _REASONS.index(finish_reason)
        self._trace.record("ended", sequence_id, reason, sequence.num_generated)

    def _fail(self) -> NoReturn:
        self._failure = "scripted failure"
        self._failures = dict.fromkeys(self._live, self._failure)
        self._outbox.post([self._advance(sequence_id) for sequence_id in list(self._live)])
        raise EngineDeadError(self._failure)
