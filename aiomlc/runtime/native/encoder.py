"""Typed interface of a compiled encoder."""

from __future__ import annotations

__all__ = ("Encoder", "NativeEncoder")

import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, final

import numpy as np

from aiomlc.runtime.concurrency.process_lifecycle import invalidate_after_fork, leak
from aiomlc.runtime.native.library import native_function, open_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.compiler.job import CompiledLibrary


class Encoder(Protocol):
    """An encoder that computes one vector per token."""

    def forward(self, inputs: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the last hidden states `[tokens of all inputs, hidden]`. Blocks; thread-safe."""
        ...


@final
class NativeEncoder:
    """A compiled encoder library with its parameters."""

    def __init__(
        self, library: CompiledLibrary, params: Sequence[object], num_threads: int
    ) -> None:
        """Load the library. Blocks.

        Args:
            params: FFI tensors in the order of the library's metadata.

        Raises:
            ModelLoadError: If the library cannot be loaded or lacks a function.
        """
        with open_library(library) as module:
            self._handle = native_function("aiomlc.encoder_open")(module, list(params), num_threads)

        self._forward = native_function("aiomlc.encoder_forward")
        invalidate_after_fork(self)

    def abandon(self) -> None:
        """Leak the encoder, because a forked process must not free it."""
        leak(self._handle)

    def forward(self, inputs: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Compute the last hidden states of inputs, concatenated without padding.

        Args:
            inputs: Token ids of each input, at least one, all in range.

        Returns:
            float32 array `[tokens of all inputs, hidden]`. The rows of an input do not depend on
            the other inputs, bit for bit.
        """
        ids = array.array("i", (token_id for token_ids in inputs for token_id in token_ids))
        lengths = array.array("i", map(len, inputs))
        hidden = self._forward(self._handle, ids.tobytes(), lengths.tobytes())
        states: Any = np.from_dlpack(hidden)
        return cast("NDArray[np.float32]", states)
