"""Tests of the modules that `import aiomlc` loads and of the names that it exports."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import aiomlc

ALIASES = {"FunctionForm": "ToolPromptFormat"}
UNIONS = {"ChatMessageParam"}  # Which have no name.


def run(program: str) -> str:
    """Run a program with warnings as errors, and return its output."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.parametrize("names", ["", "; aiomlc.AsyncMLCEngine; aiomlc.MLCEngine"])
def test_import_loads_no_heavy_package(names: str) -> None:
    loaded = run(f"import sys, aiomlc{names}; print(*sorted(sys.modules))").split()

    assert {"tvm", "tvm_ffi", "torch", "transformers", "numpy"}.isdisjoint(loaded)


def test_import_does_not_load_the_engine() -> None:
    loaded = run("import sys, aiomlc; print(*sorted(sys.modules))").split()

    assert {"pydantic", "tokenizers", "jinja2", "anyio", "prometheus_client"}.isdisjoint(loaded)


def test_every_public_name_can_be_imported() -> None:
    for name in set(dir(aiomlc)) - {"__version__"} - UNIONS:
        assert getattr(aiomlc, name).__name__ == ALIASES.get(name, name)

    missing = "Missing"
    with pytest.raises(AttributeError, match="No aiomlc attribute Missing"):
        getattr(aiomlc, missing)


@pytest.mark.parametrize("name", ["LLM", "Engine", "Llama", "OpenAI", "SamplingParams"])
def test_a_name_of_another_library_is_answered_with_ours(name: str) -> None:
    with pytest.raises(ImportError, match=f"aiomlc has no '{name}': use .*(MLCEngine|arguments)"):
        exec(f"from aiomlc import {name}")

    with pytest.raises(AttributeError, match=f"aiomlc has no '{name}': use ") as caught:
        getattr(aiomlc, name)

    assert (caught.value.name, caught.value.obj) == (name, aiomlc)


def modules_with_getattr() -> list[str]:
    """Return the modules of the library whose source defines `__getattr__`."""
    root = Path(aiomlc.__file__).parent
    return [
        ".".join((aiomlc.__name__, *file.relative_to(root).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for file in sorted(root.rglob("*.py"))
        if re.search(r"^(def __getattr__|.*__getattr__.* = )", file.read_text(), re.MULTILINE)
    ]


@pytest.mark.parametrize("module", modules_with_getattr())
def test_a_module_answers_hasattr_for_every_name(module: str) -> None:
    names = ["LLM", "OpenAI", "SamplingParams", "missing", "__missing__", "_missing", "Größe", ""]

    found = {name: hasattr(import_module(module), name) for name in names}

    assert found == dict.fromkeys(names, False)
    with pytest.raises(AttributeError):
        getattr(import_module(module), names[0])


def test_version_equals_that_of_the_distribution() -> None:
    assert aiomlc.__version__ == version("aiomlc")


def test_the_annotations_of_public_classes_can_be_resolved() -> None:
    classes = filter(inspect.isclass, (getattr(aiomlc, name) for name in dir(aiomlc)))
    unresolved = []
    for cls in classes:
        for name, member in [("", cls), *vars(cls).items()]:
            annotated: Any = getattr(member, "fget", member)
            if name and not inspect.isfunction(annotated):
                continue

            try:
                typing.get_type_hints(annotated)
            except NameError as error:
                unresolved.append((cls.__name__, name, error.name))

    assert unresolved == []
