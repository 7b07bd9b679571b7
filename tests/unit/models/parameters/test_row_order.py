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


@given(st.builds(RowOrder, SIZES, SIZES, st.tuples(SIZES, SIZES, SIZES)), st.integers(0, 7))
def test_source_runs_are_the_parts_of_all_groups_and_the_remaining_rows(
    order: RowOrder, remaining: int
) -> None:
    blocks, groups, parts = order.blocks, order.groups, order.parts
    covered = blocks * groups * sum(parts)
    rows = np.arange(covered).reshape(blocks, groups, -1)
    split = np.split(rows, np.cumsum(parts)[:-1], axis=2)
    joined = np.concatenate([part.reshape(blocks, -1) for part in split], axis=1)
    expected = [*joined.reshape(-1).tolist(), *range(covered, covered + remaining)]

    runs = source_runs(order, covered + remaining)

    assert [row for start, rows in runs for row in range(start, start + rows)] == expected


@pytest.mark.parametrize("is_mlc", [False, True])
def test_the_row_order_does_not_apply_to_mlc_directories(is_mlc: bool) -> None:
    order = RowOrder(1, 2, (1, 1))
    parameter = PackedParameter(
        "t0", "matrix", (("bf16", 4),), (4, 8), ("t0.weight",), row_order=order
    )

    (planned,) = make_plan([parameter], _source(4, is_mlc=is_mlc)).params

    assert planned.row_order == (None if is_mlc else order)
