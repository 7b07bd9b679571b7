"""A test of a device's attention when a model is opened: some drivers compute wrong rows.

Kernels for whole prompts, for later chunks of prompts and for single tokens are different ones, so
a prompt must have the same logits in one pass, in two and token by token. The prompts have other
lengths than the tiles and pages of the kernels.
"""

from __future__ import annotations

__all__ = ("require_equal_rows",)

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aiomlc.config import PAGE_SIZE
from aiomlc.errors import ModelLoadError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aiomlc.runtime.native.model import NativeModel

_LENGTHS: Final = (37, 9)
_FIRST_CHUNK: Final = 5
#: Of the range of the logits: rounding of float16 keys is far below it, a wrong row far above.
_TOLERANCE: Final = 0.05


def require_equal_rows(model: NativeModel, device: object) -> None:
    """Require that prompts have the same logits in one pass, in chunks and token by token.

    Raises:
        ModelLoadError: If they differ: the driver of the device is not to be used.
    """
    prompts = _prompts(model)
    stepped = _logits(model, [[[token] for token in prompt] for prompt in prompts])
    passes = {
        "one pass": [[prompt] for prompt in prompts],
        "chunks": [[prompt[:_FIRST_CHUNK], prompt[_FIRST_CHUNK:]] for prompt in prompts],
    }
    for name, chunks in passes.items():
        difference = np.abs(_logits(model, chunks) - stepped).max()
        if not difference <= _TOLERANCE * np.ptp(stepped):  # Also of NaN.
            raise ModelLoadError(
                f"device {device}: its driver computes wrong attention: the logits of a prompt "
                f"differ by {difference:.3g} between {name} and single tokens; install another "
                "driver or version, or use device 'cpu'",
                field="device",
            )


def _prompts(model: NativeModel) -> list[list[int]]:
    """Return prompts that fit: as many as rows of a pass, of as many tokens as it has."""
    shape = model.shape
    rows = min(len(_LENGTHS), shape.max_batch_size)
    cached = PAGE_SIZE * (model.free_pages() // rows)
    longest = min(shape.context_window, shape.prefill_chunk_size // rows, cached)
    return [
        [(7 * i * i + 3 * i + row) % model.vocab_size for i in range(min(length, longest))]
        for row, length in enumerate(_LENGTHS[:rows])
    ]


def _logits(model: NativeModel, chunks: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.float32]:
    """Return the logits after each sequence, whose chunks are appended in one pass each."""
    last: dict[int, NDArray[Any]] = {}
    for sequence_id in range(len(chunks)):
        model.add_sequence(sequence_id)
    for step in range(max(map(len, chunks))):
        rows = [(i, parts[step]) for i, parts in enumerate(chunks) if parts[step:] and parts[step]]
        for (sequence_id, _), logits in zip(rows, model.forward(rows), strict=True):
            last[sequence_id] = logits
    for sequence_id in range(len(chunks)):
        model.remove_sequence(sequence_id)
    return np.stack([last[sequence_id] for sequence_id in range(len(chunks))])
