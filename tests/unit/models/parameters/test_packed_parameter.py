"""The storage of parameters in both layout families."""

from __future__ import annotations

import pytest

from aiomlc.models.parameters.packed_parameter import PackedParameter


def matrix(format_name: str, rows: int, columns: int) -> PackedParameter:
    return PackedParameter("w", "matrix", ((format_name, rows),), (rows, columns), ("w",))


@pytest.mark.parametrize(
    ("format_name", "storage", "shape", "nbytes"),
    [
        ("f32", "vector", (5, 40), 5 * 40 * 4),
        ("q4", "rows", (5, 2, 18), 5 * 2 * 18),  # Two groups of 32 columns.
    ],
)
def test_rows_are_not_padded_to_tiles(
    format_name: str, storage: str, shape: tuple[int, ...], nbytes: int
) -> None:
    tiles = matrix(format_name, 5, 40)
    rows = tiles.stored_as("rows")

    assert (rows.storage, rows.tensor_shape, rows.nbytes) == (storage, shape, nbytes)
    assert tiles.storage == "matrix"
    assert tiles.tensor_shape == (tiles.nbytes,)
    assert tiles.nbytes > nbytes
    assert PackedParameter.from_json(rows.as_json()) == rows


def test_rows_have_only_the_formats_of_plain_graphs() -> None:
    with pytest.raises(ValueError, match="rows have no format f16"):
        _ = matrix("f16", 5, 40).stored_as("rows").nbytes
