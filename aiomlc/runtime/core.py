"""The native core as typed Python: the one file that touches the FFI."""

from __future__ import annotations

__all__ = (
    "NativeCore",
    "NativeGrammarCompiler",
    "NativeModel",
    "encode_by_pairs",
    "load_native",
    "physical_cores",
    "register_global",
)

import array
import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from aiomlc import errors
from aiomlc.runtime.core_protocol import CoreStatistics, Record
from aiomlc.runtime.forks import OF_THE_PARENT, abandon_in_children, leak
from aiomlc.runtime.logits_processors import LogitsProcessors, ProcessedSequence
from aiomlc.runtime.packed import EMPTY_TRACE, read_statistics, unpack_records, unpack_trace
from aiomlc.runtime.trace import TraceEvent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.config import SequenceOptions
    from aiomlc.runtime.byte_pairs import BytePairs
    from aiomlc.runtime.faults import Faults
    from aiomlc.runtime.grammar import Grammar
    from aiomlc.runtime.tokenizer import Tokenizer

_CROSS_THE_FFI = (
    errors.BadRequestError,
    errors.EngineError,
    errors.GrammarError,
    errors.PromptTooLongError,
    errors.EngineClosedError,
    errors.EngineDeadError,
    errors.EngineOverloadedError,
    errors.ModelLoadError,
    MemoryError,
)


def _library_path() -> Path:
    """The shared library: `$AIOMLC_LIBRARY`, beside the package or where the installer put it."""
    if chosen := os.environ.get("AIOMLC_LIBRARY"):
        return Path(chosen)

    beside = Path(__file__).parents[1] / "lib" / "libaiomlc.so"
    if beside.is_file():
        return beside
    for file in importlib.metadata.files("aiomlc") or ():
        if file.name.startswith("libaiomlc."):
            return Path(str(file.locate()))
    raise errors.ModelLoadError("the native library is missing: reinstall aiomlc", path=beside)


def _tvm_library(name: str) -> Path:
    spec = importlib.util.find_spec("tvm")  # Finds the package without importing it.
    if spec is None or not spec.submodule_search_locations:
        raise errors.ModelLoadError("apache-tvm is not installed")
    return Path(spec.submodule_search_locations[0]) / "lib" / name


def _llguidance_library() -> Path:
    spec = importlib.util.find_spec("llguidance")
    if spec is not None and spec.submodule_search_locations:
        for path in Path(spec.submodule_search_locations[0]).glob("_lib*.so"):
            return path

    raise errors.GrammarError("structured output needs the package llguidance")


def _import_tvm_ffi() -> None:
    """Import `tvm_ffi` alone: it would import torch along where that is installed, for a second
    and more. A program that uses the two together imports torch itself, before or after."""
    if "torch" in sys.modules:
        return

    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("tvm_ffi")
    finally:
        del sys.modules["torch"]


@functools.cache
def _register_errors() -> None:
    """Let our errors cross the FFI as themselves."""
    _import_tvm_ffi()
    import tvm_ffi

    for error in _CROSS_THE_FFI:
        tvm_ffi.register_error(error.__name__, error)


@functools.cache
def load_native() -> None:
    """Load TVM's runtime and our library into the process, without importing `tvm`.

    Raises:
        ModelLoadError: one of the libraries is missing or does not load.
    """
    _register_errors()
    try:
        for name in ("libtvm_runtime.so", "libtvm_runtime_extra.so"):
            ctypes.CDLL(str(_tvm_library(name)), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(_library_path()), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise errors.ModelLoadError(f"a native library does not load: {error}") from error


def physical_cores() -> int:
    """Physical cores that this process may use."""
    return int(_global("aiomlc.physical_cores")())


def register_global(name: str, function: Callable[..., object]) -> None:
    """Let every language in the process find a function by its name.

    What it returns is converted: a dict of functions becomes a map of FFI functions.
    """
    _register_errors()
    import tvm_ffi

    tvm_ffi.register_global_func(name, function)


def _global(name: str) -> Any:  # noqa: ANN401 - an FFI function has no static signature.
    import tvm_ffi

    load_native()
    function = tvm_ffi.get_global_func(name)
    # A variable of the environment can turn it off for all; then nothing would run beside the core.
    function.release_gil = True
    return function


@final
class NativeModel:
    """A compiled library with its parameters and its KV cache.

    The engine drives it; by hand it serves to look at logits. Not thread-safe.
    """

    def __init__(
        self,
        library: Path,
        params: Sequence[object],
        shape: Mapping[str, int],
        num_threads: int,
        faults: Faults | None = None,
    ) -> None:
        """Load the library and allocate the KV cache. Blocks.

        Args:
            library: The compiled library.
            params: FFI tensors in the order of the library's metadata.
            shape: `vocab_size`, `context_window`, `max_batch_size`, `prefill_chunk_size` and
                `max_total_tokens`.
            num_threads: Threads of every kernel.
            faults: What is to go wrong when an engine drives it.

        Raises:
            ModelLoadError: the library cannot be loaded or lacks a function.
            MemoryError: the KV cache cannot be allocated.
        """
        module = _global("ffi.Module.load_from_file.relax.VMExecutable")(str(library))
        self.vocab_size: int = shape["vocab_size"]
        self.handle: Any = _global("aiomlc.model_open")(
            module,
            list(params),
            dict(shape),
            num_threads,
            None if faults is None else faults.as_map(),
        )

    def add_sequence(self, sequence_id: int) -> None:
        """Begin an empty sequence."""
        _global("aiomlc.model_add_sequence")(self.handle, sequence_id)

    def fork_sequence(self, source_id: int, sequence_id: int, num_tokens: int) -> None:
        """Begin a sequence with the first tokens of another, at least one."""
        _global("aiomlc.model_fork_sequence")(self.handle, source_id, sequence_id, num_tokens)

    def remove_sequence(self, sequence_id: int) -> None:
        """Free a sequence's pages."""
        _global("aiomlc.model_remove_sequence")(self.handle, sequence_id)

    def free_pages(self) -> int:
        """Pages of the KV cache that no sequence holds."""
        return int(_global("aiomlc.model_free_pages")(self.handle))

    def forward(self, rows: Sequence[tuple[int, Sequence[int]]]) -> NDArray[np.float32]:
        """Append token ids to sequences in one forward pass.

        Args:
            rows: Pairs of a sequence id and the token ids to append, at least one each.

        Returns:
            The logits after each row's last token, `[len(rows), vocab_size]`.
        """
        logits = _global("aiomlc.model_forward")(
            self.handle,
            _shape(sequence_id for sequence_id, _ in rows),
            _shape(len(ids) for _, ids in rows),
            _shape(token for _, ids in rows for token in ids),
        )
        array: NDArray[np.float32] = np.array(np.from_dlpack(logits), dtype=np.float32)
        return array


@final
class NativeGrammarCompiler:
    """Compiles grammars for one model's vocabulary. Thread-safe."""

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, stop_token_ids: Iterable[int]
    ) -> None:
        """Build the table of tokens. Blocks, for up to a second.

        Raises:
            GrammarError: llguidance is missing, has another version or refuses the vocabulary.
        """
        pairs = tokenizer.byte_pairs()
        self._handle = _global("aiomlc.grammar_compiler_create")(
            str(_llguidance_library()),
            tokenizer.grammar_bytes(vocab_size),
            _shape(stop_token_ids),
            b"" if pairs is None else pairs.merges,
            {} if pairs is None else pairs.characters,
            b"" if pairs is None else pairs.bytes,
        )

    def compile(self, grammar: Grammar) -> object:
        """The compiled form, for `SequenceOptions.grammar`. Blocks.

        Raises:
            GrammarError: it is no grammar, or uses what is not supported.
        """
        return _global("aiomlc.grammar_compile")(self._handle, grammar.kind, grammar.source)


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
        self._handle = _global("aiomlc.core_create")(
            model.handle, None if draft is None else draft.handle, list(vocabulary), dict(options)
        )
        self._vocab_size = model.vocab_size
        self._last_statistics: CoreStatistics | None = None
        self._last_trace = EMPTY_TRACE
        # Looked up now: a core may be stopped while the interpreter ends, when imports fail.
        self._submit = _global("aiomlc.core_submit")
        self._cancel = _global("aiomlc.core_cancel")
        self._pause = _global("aiomlc.core_pause")
        self._resume = _global("aiomlc.core_resume")
        self._unpin = _global("aiomlc.core_unpin")
        self._reset = _global("aiomlc.core_reset")
        self._run = _global("aiomlc.core_run")
        self._stop = _global("aiomlc.core_stop")
        self._close = _global("aiomlc.core_close")
        self._step = _global("aiomlc.core_step")
        self._drain = _global("aiomlc.core_drain")
        self._failure = _global("aiomlc.core_failure")
        self._check_invariants = _global("aiomlc.core_check_invariants")
        self._statistics = _global("aiomlc.core_statistics")
        self._enable_trace = _global("aiomlc.core_enable_trace")
        self._read_trace = _global("aiomlc.core_read_trace")
        self.wake_fd: int = _global("aiomlc.core_wake_fd")(self._handle)
        abandon_in_children(self)

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
            raise errors.EngineClosedError(OF_THE_PARENT)

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


def encode_by_pairs(pairs: BytePairs, text: bytes) -> list[int]:
    """The tokens that forced text is cut into."""
    encode = _global("aiomlc.byte_pair_encode")
    return list(encode(pairs.merges, pairs.characters, pairs.bytes, text))


def _shape(values: Iterable[int]) -> object:
    import tvm_ffi

    return tvm_ffi.Shape(tuple(values))


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
        "stop_token_ids": _shape(options.stop_token_ids),
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
