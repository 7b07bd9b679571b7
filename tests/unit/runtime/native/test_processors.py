"""The processors of shards, by the memory nodes that the system lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiomlc.runtime.native.processors import memory_nodes, on_processors, place_shards

FIRST, SECOND, THIRD = (0, 1), (2, 3), (4,)


@pytest.mark.parametrize(
    ("count", "nodes", "placed"),
    [
        (2, [FIRST], [(), ()]),
        (2, [], [(), ()]),
        (2, [FIRST, SECOND], [FIRST, SECOND]),
        (2, [FIRST, SECOND, THIRD], [FIRST, SECOND + THIRD]),
        (4, [FIRST, SECOND], [FIRST, FIRST, SECOND, SECOND]),
        (3, [FIRST, SECOND], [FIRST, FIRST, SECOND]),
    ],
)
def test_each_shard_has_nodes_of_its_own_if_there_are_enough(
    count: int, nodes: list[tuple[int, ...]], placed: list[tuple[int, ...]]
) -> None:
    assert place_shards(count, nodes) == placed


def test_nodes_have_the_processors_that_the_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {"node0": "0-3,8", "node1": "4-7", "node10": "", "node2": "9"}
    for name, text in lists.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(f"{text}\n")
    (tmp_path / "node3").mkdir()  # Without a list.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 7, 8, 9, 11})

    assert memory_nodes(tmp_path) == [(1, 2, 8), (7,), (9,)]
    assert memory_nodes(tmp_path / "missing") == []


def test_a_thread_is_restricted_within_the_scope_only() -> None:
    before = os.sched_getaffinity(0)
    chosen = min(before)

    with on_processors((chosen,)):
        inside = os.sched_getaffinity(0)
    with on_processors(()):
        unrestricted = os.sched_getaffinity(0)

    assert (inside, unrestricted, os.sched_getaffinity(0)) == ({chosen}, before, before)
