"""The storage formats of packed matrices, against the native library."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.runtime.native.library import native_function

_NAMES = [
    "f32",
    "f16",
    "bf16",
    "q4",
    "i8channel",
    "i4progressive",
    "i8rotated",
    "iq4nlg32f16",
    *(
        f"u{bits}g{group}{scale}{zero}"
        for bits in (2, 3, 4, 5, 6, 8)
        for group in (8, 16, 32, 64, 128, 256)
        for scale in ("f16", "bf16", "f32", "k8", "k8s")
        for zero in ("z3" if bits < 8 else "z128", "zp", "m")
        if group > 8 or not (zero == "m" or (bits == 8 and zero == "zp"))
    ),
    *(f"e2m1g{group}{scale}" for group in (16, 32) for scale in ("bf16", "f32")),
]


@pytest.mark.parametrize("name", _NAMES)
def test_names_codes_and_sizes_equal_the_native_ones(name: str) -> None:
    code: Any = native_function("aiomlc.matrix_format_code")
    packed_bytes: Any = native_function("aiomlc.weights.packed_bytes")
    matrix_format = MatrixFormat.parse(name)

    assert matrix_format.name == name
    assert matrix_format.code == code(name)
    for rows, columns in ((1, 1), (16, 32), (17, 33), (40, 256), (100, 1000)):
        assert matrix_format.packed_bytes(rows, columns) == packed_bytes(name, rows, columns)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "u4",
        "u4g32f16",
        "u7g32f16z8",
        "u4g33f16z8",
        "u4g32f16z16",
        "u4g32f16z08",
        "u4g32f16z8\n",
        "u8g32f16z127",
        "u4g8f16m",
        "u8g8f16zp",
        "e2m1g32bf16z0",
        "iq4nlg32f16m",
        "u04g32f16z8",
        "grouped",
    ],
)
def test_other_names_are_errors_in_both(name: str) -> None:
    code: Any = native_function("aiomlc.matrix_format_code")

    with pytest.raises(ValueError, match="unknown matrix format"):
        MatrixFormat.parse(name)
    with pytest.raises(ValueError, match="unknown matrix format"):
        code(name)
