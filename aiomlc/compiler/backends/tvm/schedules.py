"""Schedules for GPUs of functions that dlight has no rule for."""

from __future__ import annotations

__all__ = ("schedule_experts",)

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import tvm
from tvm import s_tir, tirx

_ITEMS: Final = 32  # Of a work group that computes one number.
_ELEMENTS: Final = 128  # Of a work group whose items compute one number each.


def schedule_experts(module: tvm.IRModule) -> tvm.IRModule:
    """Schedule the functions of `expert_product.py`, which read rows that data selects."""
    for variable, function in list(module.functions.items()):
        name = variable.name_hint.rstrip("0123456789")
        if schedule := _SCHEDULES.get(name):
            module.update_func(variable, _scheduled(function, schedule))
    return module


def _scheduled(function: tirx.PrimFunc, apply: Callable[[s_tir.Schedule], None]) -> tirx.PrimFunc:
    schedule = s_tir.Schedule(function)
    apply(schedule)
    return schedule.mod["main"].with_attr("tirx.is_scheduled", True)


def _schedule_product(schedule: s_tir.Schedule) -> None:
    """Let the items of a work group read consecutive inputs."""
    loops = schedule.get_loops(schedule.get_sblock("expert_product"))
    row, slot, output, column = loops
    _, item = schedule.split(column, [None, _ITEMS])
    schedule.bind(schedule.fuse(row, slot), "blockIdx.y")
    schedule.bind(output, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")


def _schedule_ranks(schedule: s_tir.Schedule) -> None:
    """Let each item compute one rank."""
    row, expert, _ = schedule.get_loops(schedule.get_sblock("ranks"))
    group, item = schedule.split(schedule.fuse(row, expert), [None, _ELEMENTS])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")


_SCHEDULES: Mapping[str, Callable[[s_tir.Schedule], None]] = MappingProxyType(
    {"expert_product": _schedule_product, "expert_ranks": _schedule_ranks}
)
