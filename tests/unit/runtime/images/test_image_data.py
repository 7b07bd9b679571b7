"""Decoded images."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from aiomlc.errors import BadRequestError
from aiomlc.runtime.images.image_data import ImageData


def pixels(height: int, width: int, value: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.full((height, width, 3), value, np.uint8)


def test_an_image_has_a_size_and_equals_another_of_the_same_pixels() -> None:
    image = ImageData(pixels(2, 5))

    assert (image.height, image.width) == (2, 5)
    assert image == ImageData(pixels(2, 5))
    assert hash(image) == hash(ImageData(pixels(2, 5)))
    assert image != ImageData(pixels(2, 5, value=1))


def test_images_of_the_same_bytes_in_other_sizes_have_other_digests() -> None:
    assert ImageData(pixels(2, 5)).digest != ImageData(pixels(5, 2)).digest


def test_an_image_does_not_change_with_the_array_of_the_caller() -> None:
    array = pixels(2, 2)
    image = ImageData(array)
    array[:] = 9

    assert image == ImageData(pixels(2, 2))
    with pytest.raises(ValueError, match="read-only"):
        image.pixels[0, 0, 0] = 1
    with pytest.raises(FrozenInstanceError):
        image.pixels = array  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (np.zeros((2, 2), np.uint8), r"uint8 \[2, 2\]"),
        (np.zeros((2, 2, 4), np.uint8), r"uint8 \[2, 2, 4\]"),
        (np.zeros((0, 2, 3), np.uint8), r"uint8 \[0, 2, 3\]"),
        (np.zeros((2, 2, 3), np.float32), r"float32 \[2, 2, 3\]"),
        ([[[0, 0, 0]]], "list"),
    ],
)
def test_pixels_that_are_not_rgb_are_refused(value: object, got: str) -> None:
    with pytest.raises(BadRequestError, match=got) as caught:
        ImageData(value)  # type: ignore[arg-type]

    assert caught.value.param == "pixels"
