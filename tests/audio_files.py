"""Audio files for tests."""

from __future__ import annotations

__all__ = ("wav_bytes",)

import io
import wave

import numpy as np
from numpy.typing import NDArray


def wav_bytes(samples: NDArray[np.float32], rate: int = 16_000) -> bytes:
    """Return samples `[samples]` or `[samples, channels]` as a WAV file of 16 bits."""
    data = np.clip(np.round(samples * 32767), -32768, 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(data.tobytes())
    return buffer.getvalue()
