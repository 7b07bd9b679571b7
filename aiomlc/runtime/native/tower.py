"""A compiled vision tower."""

from __future__ import annotations

__all__ = ("NativeTower",)

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from aiomlc.runtime.concurrency.process_lifecycle import invalidate_after_fork, leak
from aiomlc.runtime.native.library import native_function, open_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.compiler.job import CompiledLibrary


@final
class NativeTower:
    """A compiled tower with its parameters."""

    def __init__(
        self, library: CompiledLibrary, params: Sequence[object], num_threads: int
    ) -> None:
        """Load the library. Blocks.

        Args:
            library: The library.
            params: FFI tensors in the order of the library's metadata.
            num_threads: Threads per kernel.

        Raises:
            ModelLoadError: If the library cannot be loaded or lacks a function.
        """
        with open_library(library) as module:
            self._handle = native_function("aiomlc.encoder_open")(module, list(params), num_threads)

        self._forward = native_function("aiomlc.encoder_forward")
        self._inputs: dict[str, list[str]] = library.metadata["inputs"]
        self._params = {
            record["name"]: param
            for record, param in zip(library.metadata["params"], params, strict=True)
        }
        invalidate_after_fork(self)

    def abandon(self) -> None:
        """Leak the tower, because a forked process must not free it."""
        leak(self._handle)

    def vector(self, name: str) -> NDArray[np.float32] | None:
        """Return a parameter that is a vector; None if there is none of this name."""
        if name not in self._params:
            return None

        values: Any = np.from_dlpack(cast("Any", self._params[name]))
        return cast("NDArray[np.float32]", values)

    def forward(
        self, inputs: Mapping[str, NDArray[Any]], function: str = "encode"
    ) -> NDArray[np.float32]:
        """Compute rows, float32 `[rows, size]`. Blocks; thread-safe.

        Args:
            inputs: Contiguous float32 and int32 arrays by the names of the function's inputs.
            function: The function of the library; `encode` returns embedded rows.
        """
        import tvm_ffi

        tensors = [tvm_ffi.from_dlpack(inputs[name]) for name in self._inputs[function]]
        rows: Any = np.from_dlpack(self._forward(self._handle, function, tensors))
        return cast("NDArray[np.float32]", rows)
