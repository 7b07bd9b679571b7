"""The sizes that images get, the crops of long ones, and interpolated positions."""

from __future__ import annotations

import numpy as np
import pytest

from aiomlc.errors import BadRequestError
from aiomlc.runtime.vision.budget_processor import budget_size
from aiomlc.runtime.vision.grid_processor import interpolated_rows, smart_size
from aiomlc.runtime.vision.pan_and_scan_processor import PanAndScan

SCAN = PanAndScan(min_crop_size=256, max_crops=4, min_ratio=1.2)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((280, 280), (280, 280)),
        ((293, 295), (280, 308)),  # Each side is rounded to the nearest multiple of 28.
        ((14, 14), (56, 56)),  # Too few pixels.
        ((10, 1000), (28, 560)),
        ((4000, 3000), (1148, 840)),  # Too many pixels.
        ((70, 42), (56, 56)),  # A half is rounded to the even one.
    ],
)
def test_sides_are_multiples_of_a_block_within_the_bounds(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert smart_size(*size, 28, 56 * 56, 28 * 28 * 1280) == expected


def test_an_image_that_is_200_times_as_long_as_wide_is_the_longest() -> None:
    assert smart_size(2000, 10, 28, 1, 10**6)[1] == 28
    with pytest.raises(BadRequestError, match=r"at most 200 times the other, got 10 x 2001"):
        smart_size(2001, 10, 28, 1, 10**6)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((480, 480), (768, 768)),
        ((100, 400), (384, 1584)),
        ((1, 100), (48, 8016)),  # A side of less than a block.
        ((1, 1000), (48, 13440)),  # As long as the budget allows.
        ((1000, 1), (13440, 48)),
    ],
)
def test_an_image_fills_its_budget_of_tokens(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    rows, columns = budget_size(*size, 48, 280)

    assert (rows, columns) == expected
    assert rows * columns <= 280 * 48 * 48


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((600, 700), []),  # Not long.
        ((600, 800), [(600, 400)] * 2),
        ((512, 2048), [(512, 512)] * 4),
        ((1000, 300), [(334, 300)] * 2 + [(332, 300)]),
        ((200, 900), []),  # The crops would be smaller than the least.
        ((256, 4000), [(256, 1000)] * 4),
    ],
)
def test_long_images_are_cropped_along_the_longer_side(
    size: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    crops = SCAN.crops(np.zeros((*size, 3), np.uint8))

    assert [crop.shape[:2] for crop in crops] == expected


def test_corners_of_an_image_are_those_of_the_table() -> None:
    y, x = (axis.reshape(-1).astype(np.int32) for axis in np.mgrid[:3, :5])
    ids, weights = interpolated_rows(y, x, (3, 5), 4)
    table = np.arange(16, dtype=np.float32)
    values = (table[ids.reshape(-1, 4)] * weights).sum(1).reshape(3, 5)

    assert [values[0, 0], values[0, -1], values[-1, 0], values[-1, -1]] == [0, 3, 12, 15]
    np.testing.assert_allclose(values[0], np.linspace(0, 3, 5), rtol=1e-6)
    np.testing.assert_allclose(values[:, 0], np.linspace(0, 12, 3), rtol=1e-6)
    np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-6)


def test_an_image_of_one_token_has_the_first_row_of_the_table() -> None:
    zero = np.zeros(1, np.int32)
    ids, weights = interpolated_rows(zero, zero, (1, 1), 4)

    assert (ids[0], weights[0].tolist()) == (0, [1.0, 0.0, 0.0, 0.0])
