"""The tokens of a window are divided at pairs of timestamps."""

from __future__ import annotations

import pytest

from aiomlc.runtime.speech.segments import TokenSegment, split_window

FIRST = 100
WINDOW = 3000


@pytest.mark.parametrize(
    ("tokens", "segments", "num_frames"),
    [
        # Without pairs, the whole window is a segment, which ends with its last timestamp.
        ([1, 2], [(0, WINDOW, (1, 2))], WINDOW),
        ([], [(0, WINDOW, ())], WINDOW),
        ([100, 1, 150], [(0, 100, (100, 1, 150))], WINDOW),
        ([100, 1], [(0, WINDOW, (100, 1))], WINDOW),
        # Pairs end segments; what follows the last one is cut off.
        ([100, 1, 150, 150, 2], [(0, 100, (100, 1, 150))], 100),
        (
            [100, 1, 150, 160, 2, 170, 170, 3],
            [(0, 100, (100, 1, 150)), (120, 140, (160, 2, 170))],
            140,
        ),
        # With one timestamp at the end, there is no more speech.
        (
            [100, 1, 150, 160, 2, 170],
            [(0, 100, (100, 1, 150)), (120, 140, (160, 2, 170))],
            WINDOW,
        ),
        # A pair at the very begin must not stop the recording.
        ([100, 100], [(0, 0, (100,))], WINDOW),
    ],
)
def test_windows_are_divided_at_pairs(
    tokens: list[int], segments: list[tuple[int, int, tuple[int, ...]]], num_frames: int
) -> None:
    split = split_window(tokens, FIRST, 0, WINDOW)

    assert split.segments == [TokenSegment(*each) for each in segments]
    assert split.num_frames == num_frames


def test_times_count_from_the_begin_of_the_recording() -> None:
    (segment,) = split_window([110, 1, 120, 120], FIRST, 500, WINDOW).segments

    assert (segment.begin, segment.end) == (520, 540)
