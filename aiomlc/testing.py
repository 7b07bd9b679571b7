"""Doubles for tests of programs that use the library: an engine without a model."""

from __future__ import annotations

__all__ = ("FakeCore", "fake_loader", "fake_model")

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

import tokenizers
import tokenizers.decoders
import tokenizers.models
import tokenizers.pre_tokenizers
from anyio.lowlevel import checkpoint

from aiomlc.api.async_engine import Loader, Model
from aiomlc.config import EngineConfig, Mode, SequenceOptions
from aiomlc.errors import EngineClosedError, EngineDeadError
from aiomlc.runtime.core_protocol import Core, CoreStatistics, Record
from aiomlc.runtime.loaded_model import LoadedModel, LoadProgress
from aiomlc.runtime.template import ChatTemplate
from aiomlc.runtime.tokenizer import Tokenizer

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TOTAL_PAGES = 64


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
    live sequence holds one page.

    Args:
        replies: What the sequences say.
        hand_stepped: `run` takes only the steps that `allow` grants, so that a test decides when
            the engine moves.
        failures: By sequence id (the first is 1): the message that request fails with, alone.
        dies_at_step: The step, from 1, at which the whole engine fails.
    """

    def __init__(
        self,
        replies: Sequence[str] = ("Hello!",),
        *,
        hand_stepped: bool = False,
        failures: Mapping[int, str] | None = None,
        dies_at_step: int | None = None,
    ) -> None:
        self.prompts: list[list[int]] = []
        self.options: list[SequenceOptions] = []
        self.cancelled: list[int] = []  #: Every id that `cancel` was called with.
        self.is_running = False  #: A thread is inside `run`.
        self.is_closed = False
        self.is_released = False
        self._replies = tuple(replies)
        self._failures = dict(failures or {})
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
        self.wake_fd, self._wake_writer = os.pipe()
        weakref.finalize(self, _close_all, self.wake_fd, self._wake_writer)

    def submit(self, prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        """Queue a prompt; returns the id of its sequence."""
        with self._changed:
            if self.is_closed:
                raise EngineClosedError("the core is closed")

            self.prompts.append(list(prompt_ids))
            self.options.append(options)
            sequence_id = len(self.prompts)
            reply = self._replies[(sequence_id - 1) % len(self._replies)]
            self._live[sequence_id] = _Sequence(reply, options, len(prompt_ids))
            self._changed.notify_all()
            return sequence_id

    def cancel(self, sequence_id: int) -> None:
        """End a sequence at the next step; an unknown id does nothing."""
        with self._changed:
            self.cancelled.append(sequence_id)
            if sequence_id in self._live:
                self._doomed.add(sequence_id)
                self._changed.notify_all()

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
            if not self._live:
                return False

            self._steps += 1
            if self._steps == self._dies_at_step:
                self._die()

            self._post([self._advance(sequence_id) for sequence_id in list(self._live)])
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
        return bool(self._live) and (self._grants is None or self._grants > 0 or self._is_doomed())

    def _is_doomed(self) -> bool:
        return self._doomed.issuperset(self._live)

    def _advance(self, sequence_id: int) -> Record:
        sequence = self._live[sequence_id]
        text, finish_reason, error = "", None, self._failures.get(sequence_id)
        if sequence_id in self._doomed:
            finish_reason, error = "abort", None
        elif error is not None:
            finish_reason = "error"
        else:
            text, finish_reason = self._next_character(sequence)

        if finish_reason is not None:
            del self._live[sequence_id]
            self._doomed.discard(sequence_id)

        return Record(
            sequence_id,
            text,
            tuple(map(ord, text)),
            finish_reason,
            error,
            sequence.num_prompt,
            sequence.num_done,
        )

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


def fake_model(core: Core, *, context_window: int = 1024) -> LoadedModel:
    """A loaded model around a core: bytes for tokens, ChatML for a template."""
    return LoadedModel(
        core=core,
        tokenizer=_byte_tokenizer(),
        chat_template=ChatTemplate(_CHATML),
        model_name="fake",
        context_window=context_window,
        vocab_size=256,
    )


def fake_loader(core: Core | None = None, **options: Any) -> Loader:  # noqa: ANN401
    """A `loader` for an engine: it serves `core`, or a `FakeCore` made with `options`."""

    async def load(
        model: Model | None,
        *,
        device: str,
        mode: Mode,
        engine_config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
    ) -> LoadedModel:
        await checkpoint()
        if on_progress is not None:
            on_progress(LoadProgress("load", 1.0, "there is nothing to load"))

        return fake_model(FakeCore(**options) if core is None else core)

    return load


def _byte_tokenizer() -> Tokenizer:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return Tokenizer(backend)


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
