"""The native engine as a Python class."""

from __future__ import annotations

__all__ = ("EngineOptions", "NativeCore")

import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from aiomlc import errors
from aiomlc.config import SpeculativeMode
from aiomlc.runtime.concurrency.process_lifecycle import FORKED_MESSAGE, invalidate_after_fork, leak
from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record
from aiomlc.runtime.engine.logits_processors import LogitsProcessors, ProcessedSequence
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.runtime.native.library import ffi_shape, native_function
from aiomlc.runtime.native.model import NativeModel
from aiomlc.runtime.native.record_codec import (
    EMPTY_TRACE,
    read_statistics,
    unpack_records,
    unpack_trace,
)
from aiomlc.runtime.native.records import native_record
from aiomlc.sampling_params import PARAMETERS, SequenceOptions

# `ignore_eos` decides which stop tokens a sequence has.
_NATIVE_PARAMETERS = tuple(name for name in PARAMETERS if name != "ignore_eos")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The settings of a native engine; None means the native default."""

    step_token_budget: int | None = None  #: Maximum tokens of a step.
    #: The same while one sequence runs and none waits, if it is more.
    idle_step_token_budget: int | None = None
    #: Maximum number of entries in the prefix cache; -1: no limit.
    max_recycling_sequences: int | None = None
    max_queue_size: int | None = None  #: Maximum number of waiting sequences.
    separate_prefill: bool = False  #: Whether a step with prompts does not decode.
    speculative_mode: SpeculativeMode = "disable"
    draft_length: int = 0  #: Draft tokens per proposal; 0 adapts the number.


@final
class NativeCore:
    """An engine of the native library.

    All methods are non-blocking except `run`, `step`, and those that transfer prefixes.
    """

    def __init__(
        self,
        model: NativeModel,
        vocabulary: Sequence[bytes],
        options: EngineOptions,
        *,
        draft: NativeModel | None = None,
    ) -> None:
        self._handle = native_function("aiomlc.core_create")(
            model.handle,
            None if draft is None else draft.handle,
            list(vocabulary),
            native_record("aiomlc.EngineOptions", asdict(options)),
        )
        # The last reference must not be dropped before: the destructor would wait for a thread that
        # may be waiting for the GIL, which a destructor holds and a call does not.
        self._close_before_drop = weakref.finalize(
            self, native_function("aiomlc.core_close"), self._handle
        )
        self._shards = model.shards
        self._vocab_size = model.vocab_size
        self._lists = _NativeLists()
        self._last_statistics: CoreStatistics | None = None
        self._last_trace = EMPTY_TRACE
        # Looked up now, as imports fail when the interpreter exits and stops a core.
        self._submit = native_function("aiomlc.core_submit")
        self._cancel = native_function("aiomlc.core_cancel")
        self._pause = native_function("aiomlc.core_pause")
        self._resume = native_function("aiomlc.core_resume")
        self._unpin = native_function("aiomlc.core_unpin")
        self._count_cached = native_function("aiomlc.core_count_cached")
        self._export_prefix = native_function("aiomlc.core_export_prefix")
        self._import_prefix = native_function("aiomlc.core_import_prefix")
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

    def submit(self, prompt: Prompt, options: SequenceOptions) -> int:
        """Queue a prompt; return the id of the new sequence.

        Raises:
            BadRequestError: If an option, a token id or an embedded piece is not allowed.
            PromptTooLongError: If the prompt leaves no room for a completion.
            EngineClosedError: If the core was closed.
        """
        handle = self._require_handle()
        pieces = [_piece_record(piece) for piece in prompt.pieces] or None
        record = _as_record(options, self._vocab_size, self._lists)
        try:
            return int(self._submit(handle, prompt.token_ids.tobytes(), pieces, record))
        finally:
            del handle  # As in `run`.

    def cancel(self, sequence_id: int) -> None:
        """Cancel a sequence; no effect on an unknown or finished one."""
        if (handle := self._handle) is not None:
            self._cancel(handle, sequence_id)

    def pause(self, sequence_id: int) -> None:
        """Stop scheduling a sequence until `resume`; no effect on an unknown or finished one."""
        if (handle := self._handle) is not None:
            self._pause(handle, sequence_id)

    def resume(self, sequence_id: int) -> None:
        """Schedule a paused sequence again."""
        if (handle := self._handle) is not None:
            self._resume(handle, sequence_id)

    def unpin(self, sequence_id: int) -> None:
        """Let the prefix cache evict a pinned sequence; no effect on an unknown one."""
        if (handle := self._handle) is not None:
            self._unpin(handle, sequence_id)

    def count_cached(self, token_ids: bytes) -> int:
        """Return how many of the first tokens, int32 ids, are in the prefix cache.

        This and the next two methods wait for the end of a step.

        Raises:
            EngineClosedError: If the core was closed.
            EngineDeadError: If the model failed.
        """
        handle = self._require_handle()
        try:
            return int(self._count_cached(handle, token_ids))
        finally:
            del handle  # As in `run`.

    def export_prefix(self, token_ids: bytes, start: int, rows: memoryview) -> None:
        """Copy the keys and values of the tokens from `start` to the end into `rows`.

        Raises:
            PrefixNotCachedError: If not all tokens are in the prefix cache.
            BadRequestError: If an argument is out of range.
            EngineError: If the engine is closed or dead.
        """
        handle = self._require_handle()
        try:
            self._export_prefix(handle, token_ids, start, _tensor(rows))
        finally:
            del handle  # As in `run`.

    def import_prefix(self, token_ids: bytes, start: int, rows: memoryview) -> None:
        """Add a prefix to the cache, of which the first `start` tokens are in it already.

        Raises:
            BadRequestError: If an argument is out of range.
            PrefixNotCachedError: If the first tokens are not in the prefix cache.
            EngineOverloadedError: If too few pages are available.
            EngineError: If the engine is closed or dead.
        """
        handle = self._require_handle()
        try:
            self._import_prefix(handle, token_ids, start, _tensor(rows))
        finally:
            del handle  # As in `run`.

    def reset(self) -> None:
        """Empty the prefix cache and set the counters to 0, after earlier cancellations."""
        if (handle := self._handle) is not None:
            self._reset(handle)

    def run(self) -> None:
        """Step until `stop` is called, without the GIL.

        Raises:
            EngineDeadError: If the model failed.
        """
        if (handle := self._handle) is not None:
            try:
                self._run(handle)
            finally:
                del handle  # The traceback of an error would keep the model alive.

    def stop(self) -> None:
        """Make `run` return after the current step."""
        if (handle := self._handle) is not None:
            self._stop(handle)

    def close(self) -> None:
        """Cancel every sequence and free its pages. Must be called after `run` has returned."""
        if (handle := self._handle) is not None:
            try:
                self._close(handle)
            finally:
                del handle  # As in `run`.

    def release(self) -> None:
        """Free the model and the wake fd, which must not be waited on any more."""
        if self._handle is None:
            return

        self._last_statistics = self.statistics()
        self._last_trace = self._packed_trace(0)
        try:
            self._close_before_drop()
        finally:
            self._handle = None  # The last reference, unless a thread is in a call.
            if self._shards is not None:
                self._shards.close()

    def abandon(self) -> None:
        """Act as after `release` without freeing anything, in a forked child process."""
        leak(self._handle)
        self._close_before_drop.detach()
        self._handle = None

    def step(self) -> bool:
        """Run one step; return False if there was nothing to do."""
        if (handle := self._handle) is None:
            return False

        try:
            return bool(self._step(handle))
        finally:
            del handle  # As in `run`.

    def drain(self) -> list[Record]:
        """Return the records since the last call."""
        handle = self._handle
        return [] if handle is None else unpack_records(self._drain(handle))

    def failure(self) -> str:
        """Return why the engine is dead; "" if it is not, or was released."""
        handle = self._handle
        return "" if handle is None else str(self._failure(handle))

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the counters; after `release`, the last one."""
        if (handle := self._handle) is not None:
            return read_statistics(self._statistics(handle))

        if self._last_statistics is None:
            raise errors.EngineClosedError(FORKED_MESSAGE)

        return self._last_statistics

    def check_invariants(self) -> None:
        """Check the consistency of the engine's state, after the current step.

        Raises:
            RuntimeError: If the state is inconsistent; the message lists every contradiction.
        """
        if (handle := self._handle) is not None:
            self._check_invariants(handle)

    def enable_trace(self) -> None:
        """Record events from now on; the last 65,536 are kept, in 4 MB."""
        if (handle := self._handle) is not None:
            self._enable_trace(handle)

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """Return the events from number `start` on, and the number of the first of them."""
        return unpack_trace(self._packed_trace(start))

    def _require_handle(self) -> object:
        if self._handle is None:
            raise errors.EngineClosedError

        return self._handle

    def _packed_trace(self, start: int) -> bytes:
        handle = self._handle
        return self._last_trace if handle is None else bytes(self._read_trace(handle, start))


@final
class _NativeLists:
    """The FFI containers of the last options, which the choices of a request share.

    Converting thousands of stop tokens or biases for each of 128 choices would take long.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, object]] = {}

    def convert(self, name: str, value: tuple[Any, ...]) -> object:
        """Return the FFI container of a value: the last one of this name, if that is the same."""
        last, converted = self._last.get(name, (None, None))
        if value is not last:
            import tvm_ffi

            converted = tvm_ffi.convert(dict(value) if name == "logit_bias" else value)
            self._last[name] = value, converted

        return converted


def _tensor(rows: memoryview) -> object:
    import numpy as np
    import tvm_ffi

    array_of_bytes = np.frombuffer(rows, np.uint8)
    # The FFI does not take memory that is read-only.
    tensor: object = tvm_ffi.from_dlpack(array_of_bytes.copy() if rows.readonly else array_of_bytes)
    return tensor


def _piece_record(piece: PromptPiece) -> object:
    import tvm_ffi

    grid = None if piece.grid is None else ffi_shape(piece.grid)
    fields = {**piece._asdict(), "rows": tvm_ffi.from_dlpack(piece.rows), "grid": grid}
    return native_record("aiomlc.PromptPiece", fields)


def _as_record(options: SequenceOptions, vocab_size: int, lists: _NativeLists) -> object:
    fields = {name: getattr(options, name) for name in _NATIVE_PARAMETERS}
    fields |= {
        "logit_bias": lists.convert("logit_bias", options.logit_bias),
        "top_logprobs": options.top_logprobs,
        "stop": lists.convert("stop", options.stop),
        "stop_token_ids": lists.convert("stop_token_ids", options.stop_token_ids),
        "suppress_tokens": lists.convert("suppress_tokens", options.suppress_tokens),
        "grammar": options.grammar,
        "is_pinned": options.is_pinned,
    }
    processors = options.logits_processors
    if isinstance(processors, LogitsProcessors):
        import tvm_ffi

        sequence = ProcessedSequence(processors, vocab_size)
        fields["logits_processor"] = tvm_ffi.convert(sequence)
        fields["logits_buffer"] = tvm_ffi.from_dlpack(sequence.logits)

    return native_record("aiomlc.SequenceOptions", fields)
