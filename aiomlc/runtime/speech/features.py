"""The log-mel spectrogram that Whisper's encoder reads."""

from __future__ import annotations

__all__ = ("LogMel",)

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FLOOR: Final = 1e-10  # Of the power in a band.
_RANGE: Final = 8.0  # Of log10 values below the largest one, about 80 dB.
_MAX_HERTZ: Final = 8000.0
_CHUNK_FRAMES: Final = 4096  # Transformed at once: 13 MB of float64.


@final
@dataclass(frozen=True)
class LogMel:
    """The settings of the features, which `preprocessor_config.json` has.

    The values are those of transformers' `WhisperFeatureExtractor`.
    """

    num_mels: int
    sample_rate: int = 16_000  #: Hz
    hop: int = 160  #: Samples from a frame to the next.
    fft_size: int = 400  #: Samples of a frame.

    def features(
        self, samples: NDArray[np.float32], check: Callable[[], None] = lambda: None
    ) -> NDArray[np.float32]:
        """Return the log-mel frames of audio, float32 `[samples // hop, mels]`. Blocks.

        Values are relative to the loudest frame, so a part of a recording has others than the
        whole.

        Args:
            samples: Mono audio at `sample_rate`, at least one sample.
            check: Called now and then; may raise an exception to end the work.
        """
        half = self.fft_size // 2
        padded = np.pad(samples, half, mode="reflect" if len(samples) > half else "symmetric")
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.fft_size)[:: self.hop]
        count = len(samples) // self.hop
        logs = np.empty((count, self.num_mels), np.float32)
        for begin in range(0, count, _CHUNK_FRAMES):
            check()
            end = min(begin + _CHUNK_FRAMES, count)
            spectrum = np.fft.rfft(frames[begin:end] * self._window)
            power = spectrum.real**2 + spectrum.imag**2
            logs[begin:end] = np.log10(np.maximum(power @ self.filters, _FLOOR))
        if count:
            np.maximum(logs, logs.max() - _RANGE, out=logs)
        logs += 4.0
        logs /= 4.0
        return logs

    @cached_property
    def _window(self) -> NDArray[np.float64]:
        phases = 2.0 * np.pi * np.arange(self.fft_size) / self.fft_size
        return 0.5 - 0.5 * np.cos(phases)  # A periodic Hann window.

    @cached_property
    def filters(self) -> NDArray[np.float64]:
        """Triangles of equal area on Slaney's mel scale, `[fft_size // 2 + 1, mels]`."""
        highest = float(_to_mel(np.array([_MAX_HERTZ]))[0])
        corners = _to_hertz(np.linspace(0.0, highest, self.num_mels + 2))
        bins = np.linspace(0.0, self.sample_rate / 2, self.fft_size // 2 + 1)[:, np.newaxis]
        low, middle, high = corners[:-2], corners[1:-1], corners[2:]
        rising = (bins - low) / (middle - low)
        falling = (high - bins) / (high - middle)
        return np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (high - low))


# Slaney's scale: linear up to 1,000 Hz, which are 15 mels, then 27 mels for a factor of 6.4.
_MELS_PER_HERTZ: Final = 15.0 / 1000.0
_MELS_PER_LOG: Final = 27.0 / np.log(6.4)


def _to_mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = 15.0 + _MELS_PER_LOG * np.log(np.maximum(hertz, 1000.0) / 1000.0)
    return np.where(hertz < 1000.0, hertz * _MELS_PER_HERTZ, logs)


def _to_hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = 1000.0 * np.exp((np.maximum(mels, 15.0) - 15.0) / _MELS_PER_LOG)
    return np.where(mels < 15.0, mels / _MELS_PER_HERTZ, powers)
