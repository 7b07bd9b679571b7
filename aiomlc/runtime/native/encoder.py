"""Typed interface of a compiled encoder."""

from __future__ import annotations

__all__ = ("Encoder", "EncoderInput", "NativeEncoder")

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, final

import numpy as np

from aiomlc.runtime.concurrency.process_lifecycle import invalidate_after_fork, leak
from aiomlc.runtime.native.library import native_function, open_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.compiler.job import CompiledLibrary


class EncoderInput(NamedTuple):
    """The tokens of one input: of a text, or of a pair of texts."""

    ids: Sequence[int]
    types: Sequence[int] = ()  #: The type of each token; empty if all are 0.


class Encoder(Protocol):
    """An encoder that computes a row for each token, or, if it classifies, for each input."""

    def forward(self, inputs: Sequence[EncoderInput]) -> NDArray[np.float32]:
        """Return the last hidden states `[tokens of all inputs, hidden]`, or the logits
        `[inputs, labels]`. Blocks; thread-safe."""
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
        self._first_position = int(library.metadata["position_offset"])
        self._has_types = library.metadata["num_token_types"] > 1
        self._prepared: list[Any] = []
        if library.metadata["is_prepared"]:
            self._prepared = [self._forward(self._handle, "prepare", [])]
        invalidate_after_fork(self)

    def abandon(self) -> None:
        """Leak the encoder, because a forked process must not free it."""
        leak(self._handle)
        leak(self._prepared)

    def forward(self, inputs: Sequence[EncoderInput]) -> NDArray[np.float32]:
        """Compute the last hidden states of inputs, concatenated without padding, or their logits.

        Args:
            inputs: Each with at least one token id, all in range.

        Returns:
            float32 array `[tokens of all inputs, hidden]`, of a classifier `[inputs, labels]`. The
            rows of an input do not depend on the other inputs, bit for bit.
        """
        import tvm_ffi

        first = self._first_position
        positions = chain.from_iterable(range(first, first + len(each.ids)) for each in inputs)
        arrays = (
            chain.from_iterable(each.ids for each in inputs),
            positions,
            chain.from_iterable(map(self._types, inputs)),
            (len(each.ids) for each in inputs),
        )
        tensors = [tvm_ffi.from_dlpack(np.fromiter(a, np.int32)) for a in arrays]
        outputs = self._forward(self._handle, "encode", [*tensors, *self._prepared])
        rows: Any = np.from_dlpack(outputs)
        return cast("NDArray[np.float32]", rows)

    def _types(self, each: EncoderInput) -> Sequence[int]:
        return each.types if each.types and self._has_types else (0,) * len(each.ids)
