"""The programs of docs/clients.md."""

from __future__ import annotations

__all__ = ("BLOCKS", "OLD_BLOCKS", "run_block")

import re
import subprocess
import sys

import pytest

from tests.e2e.programs import ROOT

_PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
_ALL = re.findall(r"^```python\n(.*?)^```$", _PAGE, re.M | re.S)
# Those that `make frameworks` runs.
OLD_BLOCKS = [block for block in _ALL if re.search("import litellm|import instructor|llama", block)]
BLOCKS = [block for block in _ALL if block not in OLD_BLOCKS]
_PROGRAM = """
import ast, sys, types, anyio
flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
code = compile(sys.stdin.read(), "docs/clients.md", "exec", flags)
names = {}
anyio.run(types.FunctionType(code, names))
print(names["answer"])
"""


def run_block(block: str, request: pytest.FixtureRequest) -> str:
    """Run a program in a process of its own, because some frameworks leave connections open.

    Returns:
        What its variable `answer` is in the end.
    """
    if "http://127.0.0.1:8000" in block:
        url = request.getfixturevalue("server").url
        block = block.replace("http://127.0.0.1:8000", url)

    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=block,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
