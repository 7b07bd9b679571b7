"""The thresholds say which texts are wrong, and which windows are silent."""

from __future__ import annotations

import pytest

from aiomlc.runtime.speech.window import DecodedWindow, Thresholds

LIMITS = Thresholds()
OFF = Thresholds(compression_ratio=None, log_prob=None, no_speech=None)


@pytest.mark.parametrize(
    ("log_prob", "ratio", "no_speech", "limits", "is_wrong", "is_silence"),
    [
        (-0.5, 1.0, 0.0, LIMITS, False, False),
        (-1.1, 1.0, 0.0, LIMITS, True, False),
        (-0.5, 2.5, 0.0, LIMITS, True, False),
        (-1.1, 2.5, 0.7, LIMITS, False, True),  # Silence is not decoded again.
        (-0.5, 1.0, 0.7, LIMITS, False, False),  # The model is sure of the text.
        (-0.5, 2.5, 0.7, LIMITS, True, False),
        (-9.0, 9.0, 1.0, OFF, False, False),
        (-9.0, 1.0, 0.7, Thresholds(log_prob=None), False, True),
        (-9.0, 1.0, 0.7, Thresholds(no_speech=None), True, False),
    ],
)
def test_windows_are_judged(
    log_prob: float,
    ratio: float,
    no_speech: float,
    limits: Thresholds,
    is_wrong: bool,
    is_silence: bool,
) -> None:
    window = DecodedWindow(
        token_ids=[],
        temperature=0.0,
        avg_logprob=log_prob,
        compression_ratio=ratio,
        no_speech_prob=no_speech,
    )

    assert window.is_wrong(limits) == is_wrong
    assert window.is_silence(limits) == is_silence
