"""What `import aiomlc` costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import aiomlc

ALIASES = {"FunctionForm": "ToolPromptFormat"}


def run(program: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.parametrize("names", ["", "; aiomlc.AsyncMLCEngine; aiomlc.MLCEngine"])
def test_importing_loads_no_heavy_package(names: str) -> None:
    loaded = run(f"import sys, aiomlc{names}; print(*sorted(sys.modules))").split()

    assert {"tvm", "tvm_ffi", "torch", "transformers", "numpy"}.isdisjoint(loaded)


def test_importing_alone_leaves_the_engine_for_its_first_use() -> None:
    loaded = run("import sys, aiomlc; print(*sorted(sys.modules))").split()

    assert {"pydantic", "tokenizers", "jinja2", "anyio"}.isdisjoint(loaded)


def test_every_public_name_is_there() -> None:
    for name in set(dir(aiomlc)) - {"__version__"}:
        assert getattr(aiomlc, name).__name__ == ALIASES.get(name, name)

    missing = "Nothing"
    with pytest.raises(AttributeError, match="No aiomlc attribute Nothing"):
        getattr(aiomlc, missing)


def test_the_version_is_the_distributions() -> None:
    assert aiomlc.__version__ == version("aiomlc")
