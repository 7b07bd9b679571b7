"""What the package requires, and what `make wheels` runs."""

from __future__ import annotations

import ast
import itertools
import platform
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_imported_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = " ".join(itertools.chain(project["dependencies"], *extras.values()))
    declared = {_normalized(name) for name in re.findall(r"[\w.-]+", requirements)}
    distributions = packages_distributions()
    undeclared = {
        f"{module} in {path.relative_to(ROOT)}"
        for path in (ROOT / "aiomlc").rglob("*.py")
        for module in _imported(path) - sys.stdlib_module_names - {"aiomlc"}
        if declared.isdisjoint(map(_normalized, distributions.get(module, [module])))
    }

    assert undeclared == set()


def _imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("architectures", "is_used"),
    [("other", False), (platform.machine(), True), (f"other {platform.machine()}", True)],
)
def test_a_wheel_is_used_where_it_was_built_for(architectures: str, is_used: bool) -> None:
    commands = subprocess.run(
        ["make", "--dry-run", "wheels", f"ARCHITECTURES={architectures}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert f"packaging/build_wheels.sh {architectures}\n" in commands
    assert ("packaging/smoke_test.sh" in commands) == is_used
