"""The modules and subpackages of every package import each other without a circle."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "aiomlc").rglob("*.py")
}
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules of aiomlc that a module imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else node.module for name in names)


IMPORTS = {name: set(_imports(path)) & MODULES.keys() for name, path in MODULES.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_circle(package: str) -> None:
    """Compare what is directly in a package; its `__init__` only exports the rest."""
    begin = f"{package}."
    edges: defaultdict[str, set[str]] = defaultdict(set)
    for name, imported in IMPORTS.items():
        if name.startswith(begin):
            first = name.removeprefix(begin).partition(".")[0]
            others = (
                each.removeprefix(begin).partition(".")[0]
                for each in imported
                if each.startswith(begin)
            )
            edges[first] |= {other for other in others if other != first}

    TopologicalSorter(edges).prepare()
