"""Every package that the library imports is declared, where it is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from tests.e2e.programs import ROOT

# The names of modules whose packages have other names.
_PACKAGES = {
    "opentelemetry": "opentelemetry-api",
    "pydantic_ai": "pydantic-ai-slim",
    "trio": "anyio",  # Its extra.
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
}
# Imported if they are there, to help their users; no extra installs them.
_OPTIONAL = {"httpx", "gevent"}


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;! ]", text)[0].lower().replace("_", "-") for text in requirements}


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])

    return names


def test_every_imported_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = _names(project["dependencies"])
    for requirements in project["optional-dependencies"].values():
        declared |= _names(requirements)

    undeclared = {
        f"{name} in {path.relative_to(ROOT)}"
        for path in (ROOT / "aiomlc").rglob("*.py")
        for name in _imports(path) - sys.stdlib_module_names - {"aiomlc"} - _OPTIONAL
        if _PACKAGES.get(name, name).replace("_", "-") not in declared
    }
    assert undeclared == set()
