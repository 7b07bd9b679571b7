"""What a usual run of the tests leaves out, and the eight shares that the rest is divided into.

`pytest` alone runs everything. `--thorough none` leaves out

- tests with the mark `thorough`,
- the parameter sets that the mark `sampled` does not name, and
- in `tests/model` and `tests/e2e`, the second event loop of each test.

`--thorough K/8` leaves out the same, but for the K-th share. The shares are disjoint, and all eight
are everything: an item's share is a hash of its name.
"""

from __future__ import annotations

__all__ = ("SHARES", "Selection", "share_of")

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SHARES = 8

_ONE_EVENT_LOOP = frozenset({"e2e", "model"})


def share_of(name: str) -> int:
    """Return the share of a test, from 0 to 7; both event loops of a test are in the same."""
    return zlib.crc32(name.encode()) % SHARES


@dataclass(frozen=True)
class Selection:
    """What `--thorough` and `--whole` select."""

    everything: bool
    share: int | None
    whole: tuple[Path, ...] = ()

    @staticmethod
    def parse(thorough: str, whole: Sequence[str] = ()) -> Selection:
        """Return the selection of `all`, `none` or a share such as `3/8`.

        Raises:
            pytest.UsageError: If `thorough` is none of these.
        """
        folders = tuple(Path(folder).resolve() for folder in whole)
        if thorough in ("all", "none"):
            return Selection(thorough == "all", None, folders)

        index, _, count = thorough.partition("/")
        if not index.isdecimal() or int(index) >= SHARES or count != str(SHARES):
            shares = f"0/{SHARES} to {SHARES - 1}/{SHARES}"
            message = f"--thorough must be all, none, or {shares}, got {thorough!r}"
            raise pytest.UsageError(message)

        return Selection(False, int(index), folders)

    def left_out(self, items: Iterable[pytest.Item]) -> set[pytest.Item]:
        """Return the items that the selection leaves out.

        Raises:
            pytest.UsageError: If a mark `sampled` has wrong arguments.
        """
        if self.everything:
            return set()

        sets: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            if not any(item.path.is_relative_to(folder) for folder in self.whole):
                sets[item.nodeid.partition("[")[0]].append(item)
        rest = {item for same in sets.values() for item in _not_usual(same)}
        return {item for item in rest if share_of(_without_event_loop(item)) != self.share}


def _not_usual(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the items of one test function that a usual run leaves out."""
    if any(True for _ in items[0].iter_markers("thorough")):
        return set(items)

    return set(items) - set(_one_event_loop(_sampled(items)))


def _sampled(items: list[pytest.Item]) -> list[pytest.Item]:
    mark = items[0].get_closest_marker("sampled")
    if mark is None:
        return items

    if mark.kwargs:
        return [item for item in items if _has_values(item, mark.kwargs)]

    match mark.args:
        case (int(count),) if count > 0:
            names = sorted({_without_event_loop(item) for item in items})
            kept = {names[index * len(names) // count] for index in range(count)}
            return [item for item in items if _without_event_loop(item) in kept]

    message = f"{items[0].nodeid}: sampled takes a positive number, or values by parameter"
    raise pytest.UsageError(message)


def _one_event_loop(items: list[pytest.Item]) -> Iterable[pytest.Item]:
    """Return the items without the second event loop of a set of other parameters."""
    if not _ONE_EVENT_LOOP & {*items[0].path.parts}:
        return items

    loops: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        loops[_without_event_loop(item)].append(item)
    return [same[zlib.crc32(name.encode()) // SHARES % len(same)] for name, same in loops.items()]


def _has_values(item: pytest.Item, values: Mapping[str, Sequence[object]]) -> bool:
    params = _params(item)
    unknown = values.keys() - params.keys()
    if unknown:
        message = f"{item.nodeid}: sampled names parameters that do not exist: {sorted(unknown)}"
        raise pytest.UsageError(message)

    return all(params[name] in values[name] for name in values)


def _without_event_loop(item: pytest.Item) -> str:
    name, _, values = item.nodeid.partition("[")
    backend = _params(item).get("anyio_backend")
    return f"{name}[{values if backend is None else values.replace(str(backend), '*', 1)}"


def _params(item: pytest.Item) -> dict[str, object]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("selection")
    group.addoption(
        "--thorough",
        default="all",
        metavar="all|none|K/8",
        help="of what a usual run leaves out: all (the default), none, or a share from 0/8 to 7/8",
    )
    group.addoption(
        "--whole",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder whose tests all run, whatever --thorough says",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: a usual run leaves the test out")
    config.addinivalue_line(
        "markers",
        "sampled(n | name=values): a usual run has n parameter sets, or those with the values",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the options do not select."""
    selection = Selection.parse(config.getoption("--thorough"), config.getoption("--whole"))
    left_out = selection.left_out(items)
    items[:] = [item for item in items if item not in left_out]
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
