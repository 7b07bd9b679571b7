"""A framework that is not installed."""

from __future__ import annotations

import pytest

from tests.e2e.programs import run_program

ADAPTERS = [
    ("langchain", "langchain_core", "langchain"),
    ("llm_plugin", "llm", "llm"),
    ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
]


@pytest.mark.parametrize(("module", "package", "extra"), ADAPTERS)
def test_a_missing_framework_is_named(module: str, package: str, extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import aiomlc.integrations.{module}"
    result = run_program(["-c", program])

    last = result.stderr.splitlines()[-1]
    assert last.startswith("aiomlc.errors.MissingPackageError")
    assert last.endswith(f"the package {package} is missing: pip install 'aiomlc[{extra}]'")


def test_importing_the_library_imports_no_framework() -> None:
    packages = {package for _, package, _ in ADAPTERS}
    program = "import sys, aiomlc; aiomlc.AsyncMLCEngine; import aiomlc.serve; print(*sys.modules)"
    loaded = set(run_program(["-c", program]).stdout.split())

    assert packages.isdisjoint(loaded)
