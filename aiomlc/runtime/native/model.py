"""A compiled library with its parameters and its KV cache, as typed Python."""

from __future__ import annotations

__all__ = ("NativeModel",)

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from aiomlc.runtime.native.library import ffi_shape, native_function, open_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.runtime.native.faults import Faults


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
        self.vocab_size: int = shape["vocab_size"]
        with open_library(library) as module:
            self.handle: Any = native_function("aiomlc.model_open")(
                module,
                list(params),
                dict(shape),
                num_threads,
                None if faults is None else faults.as_map(),
            )

    def add_sequence(self, sequence_id: int) -> None:
        """Begin an empty sequence."""
        native_function("aiomlc.model_add_sequence")(self.handle, sequence_id)

    def fork_sequence(self, source_id: int, sequence_id: int, num_tokens: int) -> None:
        """Begin a sequence with the first tokens of another, at least one."""
        native_function("aiomlc.model_fork_sequence")(
            self.handle, source_id, sequence_id, num_tokens
        )

    def remove_sequence(self, sequence_id: int) -> None:
        """Free a sequence's pages."""
        native_function("aiomlc.model_remove_sequence")(self.handle, sequence_id)

    def free_pages(self) -> int:
        """Pages of the KV cache that no sequence holds."""
        return int(native_function("aiomlc.model_free_pages")(self.handle))

    def forward(self, rows: Sequence[tuple[int, Sequence[int]]]) -> NDArray[np.float32]:
        """Append token ids to sequences in one forward pass.

        Args:
            rows: Pairs of a sequence id and the token ids to append, at least one each.

        Returns:
            The logits after each row's last token, `[len(rows), vocab_size]`.
        """
        logits = native_function("aiomlc.model_forward")(
            self.handle,
            ffi_shape(sequence_id for sequence_id, _ in rows),
            ffi_shape(len(ids) for _, ids in rows),
            ffi_shape(token for _, ids in rows for token in ids),
        )
        array: NDArray[np.float32] = np.array(np.from_dlpack(logits), dtype=np.float32)
        return array
