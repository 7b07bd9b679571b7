"""Rows that a Hugging Face directory stores in another order are read in the graph's order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import RowOrder, source_runs
from aiomlc.weights.formats.source import Source, SourceTensor
from aiomlc.weights.plan import make_plan

FILE = Path("/model/a.safetensors")
SIZES = st.integers(1, 5)


def _source(*sizes: int, is_mlc: bool = False) -> Source:
    tensors = {
        f"t{i}.weight": SourceTensor(f"t{i}.weight", FILE, 10_000 * i, "bf16", (rows, 8))
        for i, rows in enumerate(sizes)
    }
    return Source(FILE.parent, FILE.parent / "index", tensors, (FILE,), is_mlc)


@given(st.tuples(SIZES, SIZES, SIZES, SIZES), st.integers(0, 7))
def test_source_runs_are_a_transposition_and_the_remaining_rows(
    order: RowOrder, remaining: int
) -> None:
    a, b, c, d = order
    swapped = np.arange(a * b * c * d).reshape(a, c, b, d).transpose(0, 2, 1, 3).reshape(-1)
    expected = [*swapped.tolist(), *range(a * b * c * d, a * b * c * d + remaining)]

    runs = source_runs(order, a * b * c * d + remaining)

    assert [row for start, rows in runs for row in range(start, start + rows)] == expected


@pytest.mark.parametrize("is_mlc", [False, True])
def test_the_row_order_does_not_apply_to_mlc_directories(is_mlc: bool) -> None:
    parameter = PackedParameter(
        "t0", "matrix", (("bf16", 4),), (4, 8), ("t0.weight",), row_order=(1, 2, 2, 1)
    )

    (planned,) = make_plan([parameter], _source(4, is_mlc=is_mlc)).params

    assert planned.row_order == (None if is_mlc else (1, 2, 2, 1))
