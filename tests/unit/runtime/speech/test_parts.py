"""A long recording is divided where it is quiet."""

from __future__ import annotations

import numpy as np

from aiomlc.runtime.speech.parts import split_recording

RATE = 1000


def noise(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    random = np.random.Generator(np.random.PCG64(1))
    return (1.0 + random.random(int(seconds * RATE))).astype(np.float32)


def test_a_short_recording_is_one_part() -> None:
    assert split_recording(noise(20), 20, RATE) == [0]


def test_parts_end_in_the_quietest_place_near_their_length() -> None:
    samples = noise(50)
    samples[17_300:17_500] = 0.01  # Within 5 s of 20 s.
    samples[17_400] = 0.0
    samples[5_000:5_500] = 0.0  # Not near it.
    samples[41_000:41_100] = -0.02

    assert split_recording(samples, 20, RATE)[:2] == [0, 17_400]
    second = split_recording(samples, 20, RATE)[2]
    assert 41_000 <= second < 41_100


def test_parts_cover_silence_and_end() -> None:
    begins = split_recording(np.zeros(100_000, np.float32), 10, RATE)

    # Silence is cut at the first place that is searched.
    assert begins == list(range(0, begins[-1] + 1, 5_000))
    assert 100_000 - begins[-1] <= 10_000
