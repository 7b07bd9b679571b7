"""The items of the kernels of recurrent layers: how much of a state each keeps in registers."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import s_tir

from aiomlc.compiler.backends.tvm.grid import Grid
from aiomlc.compiler.backends.tvm.recurrent_kernels import delta_kernel
from aiomlc.models.config.layers import GatedDeltaConfig


def _kernel(grid: Grid, key_dim: int, value_dim: int) -> Any:  # noqa: ANN401 - tvm is untyped.
    plan = GatedDeltaConfig(
        num_key_heads=2, num_value_heads=4, key_dim=key_dim, value_dim=value_dim, width=4
    )
    return delta_kernel(grid, plan)


def _cells_and_items(kernel: Any) -> tuple[int, int]:  # noqa: ANN401 - tvm is untyped.
    """Return the numbers of a state that an item keeps, and the items of a work group."""
    schedule = s_tir.Schedule(kernel)
    block = schedule.get_sblock("update")
    buffers = {buffer.name: buffer for buffer in schedule.get(block).alloc_buffers}
    items = schedule.get(schedule.get_loops(block)[-1])
    return int(buffers["cells"].shape[0]), int(items.extent)


@pytest.mark.parametrize(
    ("key_dim", "value_dim", "cells", "items"),
    [(128, 128, 32, 32), (256, 128, 64, 32), (16, 16, 4, 32), (6, 4, 3, 8), (5, 3, 5, 1)],
)
def test_items_of_a_gpu_divide_the_columns_of_a_state(
    key_dim: int, value_dim: int, cells: int, items: int
) -> None:
    kernel = _kernel(Grid(is_gpu=True), key_dim, value_dim)

    assert _cells_and_items(kernel) == (cells, items)


def test_a_processor_computes_whole_columns() -> None:
    kernel = _kernel(Grid(is_gpu=False), 128, 128)

    assert _cells_and_items(kernel) == (128, 1)
