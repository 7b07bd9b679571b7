"""The parts of a recording that is longer than a model hears at once."""

from __future__ import annotations

__all__ = ("split_recording",)

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SEARCHED_SECONDS: Final = 5.0  # Before and after the length that is wished.
_QUIET_SECONDS: Final = 0.1  # Of the quietest place.


def split_recording(samples: NDArray[np.float32], seconds: float, sample_rate: int) -> list[int]:
    """Return where the parts of a recording begin, as indices of samples; 0 is the first.

    Each part but the last has about `seconds`. It ends within 5 s of that length, at the sample
    with the smallest number in the quietest tenth of a second, as the authors of Qwen 3 ASR do it.
    """
    length = int(seconds * sample_rate)
    searched = int(_SEARCHED_SECONDS * sample_rate)
    begins = [0]
    while len(samples) - begins[-1] > length:
        middle = begins[-1] + length
        left, right = max(begins[-1], middle - searched), min(len(samples), middle + searched)
        cut = left + _quietest(np.abs(samples[left:right]), int(_QUIET_SECONDS * sample_rate))
        begins.append(max(cut, begins[-1] + 1))
    return begins


def _quietest(loudness: NDArray[np.float32], width: int) -> int:
    """Return the index of the smallest number in the quietest `width` samples."""
    sums = np.cumsum(np.concatenate([np.zeros(1), loudness.astype(np.float64)]))
    begin = int(np.argmin(sums[width:] - sums[:-width])) if len(loudness) > width else 0
    return begin + int(np.argmin(loudness[begin : begin + width]))
