"""The includes of the native core have no circle, at any level of its folders."""

from __future__ import annotations

import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "native" / "src"
FILES = [path for path in SOURCES.rglob("*") if path.suffix in (".cc", ".h")]
FOLDERS = sorted({SOURCES, *(path for path in SOURCES.rglob("*") if path.is_dir())})

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCES)))
def test_includes_have_no_circle(folder: Path) -> None:
    """Compare sub-folders and files of a folder; what is outside of it does not count."""
    includes: defaultdict[str, set[str]] = defaultdict(set)
    for path in FILES:
        if not path.is_relative_to(folder):
            continue
        for name in _INCLUDE.findall(path.read_text()):
            included = SOURCES / name
            if included.is_file() and included.is_relative_to(folder):
                first, second = (each.relative_to(folder).parts[0] for each in (path, included))
                if first != second:
                    includes[first].add(second)

    TopologicalSorter(includes).prepare()


def test_folders_of_linear_kernels_are_small() -> None:
    crowded = {
        str(folder.relative_to(SOURCES)): count
        for folder in FOLDERS
        if folder.is_relative_to(SOURCES / "kernels" / "linear")
        and (count := sum(path.parent == folder for path in FILES)) > 15
    }

    assert not crowded
