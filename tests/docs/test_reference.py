"""Every public name stands in `docs/reference/` exactly once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiomlc
import aiomlc.errors
from aiomlc.errors import AiomlcError
from tests.docs.pages import ROOT

EXPORTS: list[str] = list(vars(aiomlc)["__all__"])
REFERENCE = ROOT / "docs" / "reference"
ENTRIES = [
    name
    for page in sorted(REFERENCE.glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M)
]
#: What programs do not import; everything else is public.
INTERNAL = {
    *("__main__", "_version", "api", "bundled", "cache", "cli", "compiler", "config", "devices"),
    *("gguf", "models", "runtime", "sampling_params", "sources", "tools", "validation"),
    *("weights", "workers"),
    "errors",  # All of it is exported by `aiomlc`.
    *("integrations.frameworks", "integrations.llm_plugin", "integrations.pydantic_ai_request"),
}


def _exports(path: Path) -> list[str]:
    """Return `__all__` of a module without importing it, since it may need a package."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))

    return []


def _public_names() -> Iterator[tuple[str, list[str]]]:
    """Yield each public module with its public names."""
    yield "aiomlc", EXPORTS
    root = Path(aiomlc.__file__).parent
    for path in sorted(root.iterdir()):
        if path.stem.startswith("__") or path.stem in INTERNAL:
            continue

        if path.suffix == ".py":
            yield f"aiomlc.{path.stem}", _exports(path)
        elif (path / "__init__.py").is_file():
            if names := _exports(path / "__init__.py"):
                yield f"aiomlc.{path.name}", names
            else:  # Its modules are imported by their own names.
                for module in sorted(path.glob("[!_]*.py")):
                    if f"{path.name}.{module.stem}" not in INTERNAL:
                        yield f"aiomlc.{path.name}.{module.stem}", _exports(module)


PUBLIC = dict(_public_names())


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference_once(module: str) -> None:
    counts = Counter(name for name in ENTRIES if name.rpartition(".")[0] == module)

    assert PUBLIC[module]
    assert sorted(counts.elements()) == sorted(f"{module}.{name}" for name in PUBLIC[module])


def test_the_reference_has_no_other_names() -> None:
    others = [name for name in ENTRIES if name.rpartition(".")[0] not in PUBLIC]
    assert [name for name in others if not name.startswith("aiomlc.api.")] == []


def test_all_errors_are_exported() -> None:
    assert set(aiomlc.errors.__all__) <= set(EXPORTS)


def _errors() -> set[str]:
    classes = (getattr(aiomlc, name) for name in EXPORTS)
    return {
        value.__name__
        for value in classes
        if isinstance(value, type) and issubclass(value, AiomlcError)
    }


def test_every_error_has_a_cause_and_a_remedy() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+Error)` \| (.+?) \| (.+?) \|$", page, re.M)

    assert sorted(name for name, _, _ in rows) == sorted(_errors())


def test_the_tree_of_errors_is_complete() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    tree = re.findall(r"^(?:[│ ]*[├└]── )?(\w+Error)\b(?: +.*)?$", page, re.M)

    assert sorted(tree) == sorted(_errors())
