"""The relative error of logits, compared with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.logits_error import compare


def test_error_is_relative_to_the_reference() -> None:
    reference = np.array([[3, 4], [0, 10], [6, 8]], np.float32)
    logits = np.array([[3, 4], [0, 9], [8, 7.5]], np.float32)

    error = compare(logits, reference)

    assert error.median == pytest.approx(0.1)
    assert error.max == pytest.approx(np.hypot(2, 0.5) / 10)
    assert error.agreement == pytest.approx(2 / 3)
