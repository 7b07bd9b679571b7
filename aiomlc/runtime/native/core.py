"""The native core as typed Python."""

from __future__ import annotations

__all__ = ("NativeCore",)

import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

from aiomlc import errors
from aiomlc.runtime.concurrency.process_lifecycle import FORKED_MESSAGE, invalidate_after_fork, leak
from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record
from aiomlc.runtime.engine.logits_processors import LogitsProcessors, ProcessedSequence
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.runtime.native.library import ffi_shape, native_function
from aiomlc.runtime.native.model import NativeModel
from aiomlc.runtime.native.record_codec import (
    EMPTY_TRACE,
    read_statistics,
    unpack_records,
    unpack_trace,
)

if TYPE_CHECKING:
    from aiomlc.sampling_params import SequenceOptions


@final
class NativeCore:
    """One engine of the native library. Every method but `run` and `step` returns at once."""

    def __init__(
        self,
        model: NativeModel,
        vocabulary: Sequence[bytes],
        options: Mapping[str, int],
        *,
        draft: NativeModel | None = None,
    ) -> None:
        self._handle = native_function("aiomlc.core_create")(
            model.handle, None if draft is None else draft.handle, list(vocabulary), dict(options)
        )
        self._vocab_size = model.vocab_size
        self._last_statistics: CoreStatistics | None = None
        self._last_trace = EMPTY_TRACE
        # Looked up now: a core may be stopped while the interpreter ends, when imports fail.
        self._submit = native_function("aiomlc.core_submit")
        self._cancel = native_function("aiomlc.core_cancel")
        self._pause = native_function("aiomlc.core_pause")
        self._resume = native_function("aiomlc.core_resume")
        self._unpin = native_function("aiomlc.core_unpin")
        self._reset = native_function("aiomlc.core_reset")
        self._run = native_function("aiomlc.core_run")
        self._stop = native_function("aiomlc.core_stop")
        self._close = native_function("aiomlc.core_close")
        self._step = native_function("aiomlc.core_step")
        self._drain = native_function("aiomlc.core_drain")
        self._failure = native_function("aiomlc.core_failure")
        self._check_invariants = native_function("aiomlc.core_check_invariants")
        self._statistics = native_function("aiomlc.core_statistics")
        self._enable_trace = native_function("aiomlc.core_enable_trace")
        self._read_trace = native_function("aiomlc.core_read_trace")
        self.wake_fd: int = native_function("aiomlc.core_wake_fd")(self._handle)
        invalidate_after_fork(self)

    def submit(self, prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        """Queue a prompt; returns our id of the new sequence.

        Raises:
            BadRequestError: an option or a token id is out of range.
            PromptTooLongError: the prompt leaves no room for a completion.
            EngineClosedError: the core was closed.
        """
        handle = self._handle
        if handle is None:
            raise errors.EngineClosedError("the engine was terminated")

        try:
            prompt = array.array("i", prompt_ids).tobytes()
        except OverflowError as error:
            raise errors.BadRequestError("a token id does not fit 32 bits") from error

        fields = {**_as_map(options), **_processed(options, self._vocab_size)}
        try:
            return int(self._submit(handle, prompt, fields))
        finally:
            del handle  # As in `run`.

    def cancel(self, sequence_id: int) -> None:
        """End a sequence; an unknown or finished id does nothing."""
        if (handle := self._handle) is not None:
            self._cancel(handle, sequence_id)

    def pause(self, sequence_id: int) -> None:
        """Give up a sequence's row until `resume`; an unknown or finished id does nothing."""
        if (handle := self._handle) is not None:
            self._pause(handle, sequence_id)

    def resume(self, sequence_id: int) -> None:
        """Let a paused sequence go on."""
        if (handle := self._handle) is not None:
            self._resume(handle, sequence_id)

    def unpin(self, sequence_id: int) -> None:
        """Let go of what a pinned sequence left; an unknown id does nothing."""
        if (handle := self._handle) is not None:
            self._unpin(handle, sequence_id)

    def reset(self) -> None:
        """Empty the prefix cache and set the counters to 0, after the cancellations so far."""
        if (handle := self._handle) is not None:
            self._reset(handle)

    def run(self) -> None:
        """Step until `stop` is called. Never takes the GIL.

        Raises:
            EngineDeadError: the model failed.
        """
        if (handle := self._handle) is not None:
            try:
                self._run(handle)
            finally:
                del handle  # Whoever keeps the error would keep the model, by its traceback.

    def stop(self) -> None:
        """Make `run` return after the step it is in."""
        if (handle := self._handle) is not None:
            self._stop(handle)

    def close(self) -> None:
        """End every sequence and free its pages. Call it when `run` has returned."""
        if (handle := self._handle) is not None:
            try:
                self._close(handle)
            finally:
                del handle  # As in `run`.

    def release(self) -> None:
        """Free the model and the wake fd. Call it when nobody waits on that any more."""
        if self._handle is None:
            return

        self._last_statistics = self.statistics()
        self._last_trace = self._packed_trace(0)
        self._handle = None  # The last reference, unless a thread is in a call.

    def abandon(self) -> None:
        """Be as after `release`, without freeing anything: in a child of the core's process."""
        leak(self._handle)
        self._handle = None

    def step(self) -> bool:
        """Run one step by hand; false when there was nothing to do."""
        if (handle := self._handle) is None:
            return False

        try:
            return bool(self._step(handle))
        finally:
            del handle  # As in `run`.

    def drain(self) -> list[Record]:
        """Everything that happened since the last call."""
        handle = self._handle
        return [] if handle is None else unpack_records(self._drain(handle))

    def failure(self) -> str:
        """Why the engine is dead; empty while it is not, and once it was released."""
        handle = self._handle
        return "" if handle is None else str(self._failure(handle))

    def statistics(self) -> CoreStatistics:
        """A snapshot of the engine's counters; the last one, once the core was released."""
        if (handle := self._handle) is not None:
            return read_statistics(dict(self._statistics(handle)))

        if self._last_statistics is None:
            raise errors.EngineClosedError(FORKED_MESSAGE)

        return self._last_statistics

    def check_invariants(self) -> None:
        """Compare everything that is counted in two places; waits for the step in progress.

        Raises:
            RuntimeError: the core contradicts itself; the message lists every contradiction.
        """
        if (handle := self._handle) is not None:
            self._check_invariants(handle)

    def enable_trace(self) -> None:
        """Record events from now on; the last 65,536 are kept, in 4 MB."""
        if (handle := self._handle) is not None:
            self._enable_trace(handle)

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """The recorded events from a number on, and the number of the first of them."""
        return unpack_trace(self._packed_trace(start))

    def _packed_trace(self, start: int) -> bytes:
        handle = self._handle
        return self._last_trace if handle is None else bytes(self._read_trace(handle, start))


def _as_map(options: SequenceOptions) -> dict[str, object]:
    return {
        "max_tokens": options.max_tokens,
        "temperature": float(options.temperature),
        "top_p": float(options.top_p),
        "top_k": options.top_k,
        "min_p": float(options.min_p),
        "presence_penalty": float(options.presence_penalty),
        "frequency_penalty": float(options.frequency_penalty),
        "repetition_penalty": float(options.repetition_penalty),
        "logit_bias": {token_id: float(bias) for token_id, bias in options.logit_bias},
        "min_tokens": options.min_tokens,
        "top_logprobs": options.top_logprobs,
        "prompt_logprobs": options.prompt_logprobs,
        "seed": None if options.seed is None else _as_int64(options.seed),
        "stop": list(options.stop),
        "stop_token_ids": ffi_shape(options.stop_token_ids),
        "grammar": options.grammar,
        "priority": options.priority,
        "is_pinned": options.is_pinned,
        "timeout": _seconds(options.timeout),
        "first_token_timeout": _seconds(options.first_token_timeout),
        "inter_token_timeout": _seconds(options.inter_token_timeout),
    }


def _processed(options: SequenceOptions, vocab_size: int) -> dict[str, object]:
    processors = options.logits_processors
    if not isinstance(processors, LogitsProcessors):
        return {"logits_processor": None}

    import tvm_ffi

    sequence = ProcessedSequence(processors, vocab_size)
    buffer = tvm_ffi.from_dlpack(sequence.logits)
    return {"logits_processor": tvm_ffi.convert(sequence), "logits_buffer": buffer}


def _seconds(limit: float | None) -> float | None:
    return None if limit is None else float(limit)


def _as_int64(seed: int) -> int:
    """The seed's low 64 bits, as the signed number that crosses the border."""
    low = seed & (1 << 64) - 1
    return low - (1 << 64) if low >> 63 else low
