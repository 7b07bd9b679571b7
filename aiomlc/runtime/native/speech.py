"""A compiled model that transcribes speech, and its memory of keys and values."""

from __future__ import annotations

__all__ = ("NativeSpeech", "SlotTokens", "SpeechModel")

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, final

import numpy as np

from aiomlc.config import PAGE_SIZE
from aiomlc.runtime.concurrency.process_lifecycle import invalidate_after_fork, leak
from aiomlc.runtime.native.library import native_function, open_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.compiler.job import CompiledLibrary

_TAPS = 3  # Frames of a convolution.
_STRIDE = 2  # Frames from an output of the encoder to the next.


class SlotTokens(NamedTuple):
    """Tokens of the sequence in a slot at consecutive positions."""

    slot: int
    ids: Sequence[int]
    start: int  #: The position of the first.
    picked: Sequence[int]  #: The indices in `ids` of the tokens whose logits are needed.


class SpeechModel(Protocol):
    """An encoder of log-mel windows, and a decoder that attends to the window of its slot."""

    @property
    def num_slots(self) -> int:
        """The sequences that can be decoded at the same time."""
        ...

    def encode(self, window: NDArray[np.float32], slot: int) -> None:
        """Encode a window, float32 `[frames, mels]`, for a slot. Blocks; thread-safe."""
        ...

    def decode(self, tokens: Sequence[SlotTokens]) -> NDArray[np.float32]:
        """Return the logits of the picked tokens, `[picked tokens of all, vocab]`. Blocks;
        thread-safe."""
        ...


@final
class NativeSpeech:
    """A compiled library with its parameters. Slots are independent of each other, bit for bit."""

    def __init__(
        self, library: CompiledLibrary, params: Sequence[object], num_threads: int, num_slots: int
    ) -> None:
        """Load the library and allocate the memory. Blocks.

        Args:
            library: The library.
            params: FFI tensors in the order of the library's metadata.
            num_threads: Threads per kernel.
            num_slots: The sequences that can be decoded at the same time.

        Raises:
            ModelLoadError: If the library cannot be loaded or lacks a function.
        """
        with open_library(library) as module:
            self._handle = native_function("aiomlc.encoder_open")(module, list(params), num_threads)

        self._call = native_function("aiomlc.encoder_forward")
        metadata = library.metadata
        self._inputs: dict[str, list[str]] = metadata["inputs"]
        self._window_positions = int(metadata["window_positions"])
        self.num_slots: int = num_slots
        positions = (int(metadata["context_window_size"]), self._window_positions)
        # The system gives memory when it is first written.
        self._memory, self._window_memory = (
            np.empty(
                (
                    int(metadata["memory_layers"]),
                    num_slots,
                    -(-count // PAGE_SIZE),
                    int(metadata["page_elements"]),
                ),
                np.float32,
            )
            for count in positions
        )
        invalidate_after_fork(self)

    def abandon(self) -> None:
        """Leak the model, because a forked process must not free it."""
        leak(self._handle)

    def states(self, window: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the encoder's outputs of a window, float32 `[positions, hidden]`.

        Args:
            window: float32 `[frames, mels]`, two frames for each position.
        """
        count, positions = len(window), self._window_positions
        padded = np.zeros((count + _TAPS, window.shape[1]), np.float32)
        padded[1 : count + 1] = window
        # `[frames and the padding of the second convolution, mels, taps]`
        taps = np.lib.stride_tricks.sliding_window_view(padded, _TAPS, axis=0)
        weights = np.ones((count + 1, 1), np.float32)
        weights[count] = 0.0
        order = _STRIDE * np.arange(positions)[:, np.newaxis] + np.arange(-1, _TAPS - 1)
        order[order < 0] = count
        rows = self._run(
            "encode",
            {
                "frames": np.ascontiguousarray(taps).reshape(count + 1, -1),
                "weights": weights,
                "order": order.astype(np.int32),
                "positions": np.arange(positions, dtype=np.int32),
                "lengths": _ints([positions]),
            },
        )
        return cast("NDArray[np.float32]", np.from_dlpack(rows))

    def encode(self, window: NDArray[np.float32], slot: int) -> None:
        """Encode a window for a slot, whose tokens attend to it from then on. Blocks; thread-safe.

        Args:
            window: float32 `[frames, mels]`, two frames for each position of the encoder.
            slot: In `[0, num_slots)`.
        """
        length = _ints([self._window_positions])
        self._run(
            "remember",
            {
                "states": self.states(window),
                "lengths": length,
                "ends": length,
                "slots": _ints([slot]),
                "memory": self._window_memory,
            },
        )

    def decode(self, tokens: Sequence[SlotTokens]) -> NDArray[np.float32]:
        """Compute the logits of the picked tokens, float32 `[picked tokens of all, vocab]`.

        Blocks; thread-safe. The keys and values of all tokens are kept in their slots, which must
        be different ones.
        """
        lengths = [len(each.ids) for each in tokens]
        begins = np.cumsum([0, *lengths])
        picked = (
            begin + i for begin, each in zip(begins, tokens, strict=False) for i in each.picked
        )
        logits = self._run(
            "decode",
            {
                "ids": _ints(chain.from_iterable(each.ids for each in tokens)),
                "positions": _ints(
                    chain.from_iterable(
                        range(each.start, each.start + len(each.ids)) for each in tokens
                    )
                ),
                "lengths": _ints(lengths),
                "ends": _ints(each.start + len(each.ids) for each in tokens),
                "window_ends": _ints([self._window_positions] * len(tokens)),
                "slots": _ints(each.slot for each in tokens),
                "order": _ints(picked).reshape(-1, 1),
                "memory": self._memory,
                "window_memory": self._window_memory,
            },
        )
        return cast("NDArray[np.float32]", np.from_dlpack(logits))

    def _run(self, function: str, inputs: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401
        import tvm_ffi

        tensors = [tvm_ffi.from_dlpack(inputs[name]) for name in self._inputs[function]]
        return self._call(self._handle, function, tensors)


def _ints(values: Any) -> NDArray[np.int32]:  # noqa: ANN401 - an iterable of integers.
    return np.fromiter(values, np.int32)
