"""What continuous integration runs for a change, and that eight commits run everything."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.plugins import selection

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def ci() -> Iterator[Any]:
    """Import .ci/plan.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("ci_plan", ROOT / ".ci" / "plan.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    native = ROOT / "native"
    paths = [path for path in native.glob("src/**/*.*") if path.suffix in (".cc", ".h")]
    return {str(path.relative_to(native)): path.read_text() for path in paths}


def _variables(call: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in call if "=" in word)


def _targets(calls: list[list[str]]) -> set[str]:
    return {word for call in calls for word in call if "=" not in word and word[0] != "-"}


def test_the_shares_are_those_of_the_python_tests(ci: Any) -> None:  # noqa: ANN401
    assert len(ci.EXPENSIVE) == ci.SHARES == selection.SHARES


def test_eight_consecutive_commits_run_everything(ci: Any, sources: dict[str, str]) -> None:  # noqa: ANN401
    plans = [ci.plan([], share, sources).calls for share in range(ci.SHARES)]

    variables = [_variables(calls[0]) for calls in plans]
    assert {v["THOROUGH"] for v in variables} == {f"{k}/8" for k in range(8)}
    quarters = {f"{k}/4" for k in range(4)}
    plain = [v for v in variables if "kernel" in v.get("NATIVE_HALVES", "engine kernel")]
    assert {v["KERNEL_SHARE"] for v in plain} == quarters
    assert any("engine" in v.get("NATIVE_HALVES", "engine kernel") for v in variables)
    assert any(v.get("HALVES") == "engine" for v in variables)
    sanitized = {v["KERNEL_SHARE"] for v in variables if v.get("HALVES") == "kernel"}
    assert sanitized == quarters
    tidied = {path for v in variables for path in v["TIDY"].split()}
    assert tidied == {
        path
        for path in sources
        if path.endswith(".cc")
        and not re.search(
            r"src/ffi/|tvm_|tensor_memory|virtual_machine|page(d_kv|_table)_state", path
        )
    }
    everything = _targets([call for calls in plans for call in calls])
    assert everything == {
        *("native", "pytest", "lint-python", "docs", "tidy", "native-sanitize", "wheel"),
        *("frameworks", "soak", "soak-address", "soak-thread", "soak-opencl", "converter"),
        "mutations-sanitize",
        "opencl",
    }


@pytest.mark.parametrize("share", range(8))
def test_every_change_runs_what_make_test_runs(
    ci: Any,  # noqa: ANN401
    sources: dict[str, str],
    share: int,
) -> None:
    assert {"native", "pytest", "lint-python", "docs"} <= _targets(
        ci.plan(["docs/faq.md"], share, sources).calls
    )


@pytest.mark.parametrize(
    ("path", "targets", "variables"),
    [
        ("native/src/kernels/moe/experts.cc", {"native-sanitize"}, {"HALVES": "kernel"}),
        ("native/src/platform/isa.cc", {"soak-thread"}, {"HALVES": "engine kernel"}),
        ("native/src/engine/stepper.cc", {"soak-thread"}, {"HALVES": "engine"}),
        ("native/tests/engine/engine_test.cc", {"native-sanitize"}, {"HALVES": "engine"}),
        ("native/src/ffi/core.cc", {"soak-address"}, {}),
        (
            "native/src/ffi/cpu/kernels.cc",
            {"soak-address"},
            {"PYTEST_ARGS": "--whole tests/model/families"},
        ),
        ("pyproject.toml", {"wheel", "frameworks"}, {}),
        ("packaging/smoke_test.sh", {"wheel", "frameworks"}, {}),
        ("aiomlc/gguf/reader.py", {"mutations-sanitize", "converter"}, {}),
        (
            "aiomlc/models/families/llama.py",
            {"converter"},
            {"PYTEST_ARGS": "--whole tests/model/families"},
        ),
        ("native/opencl/device.cc", {"opencl"}, {}),
        ("docs/faq.md", set(), {}),
    ],
)
def test_paths_call_for_steps(
    ci: Any,  # noqa: ANN401
    sources: dict[str, str],
    path: str,
    targets: set[str],
    variables: dict[str, str],
) -> None:
    share = 7 if path.startswith("native") else 6  # Of other expensive steps.

    calls = ci.plan([path], share, sources).calls

    assert targets <= _targets(calls)
    assert variables.items() <= _variables(calls[0]).items()


def test_a_header_that_changed_checks_all_that_includes_it(ci: Any) -> None:  # noqa: ANN401
    sources = {
        "src/a.h": "",
        "src/b.h": '#include "a.h"\n',
        "src/b.cc": '#include "b.h"\n#include <vector>\n',
        "src/c.cc": '#include "c.h"\n',
        "src/c.h": "",
    }

    assert ci.dependents(["src/a.h"], sources) == {"src/a.h", "src/b.h", "src/b.cc"}
    for share in range(8):
        assert "src/b.cc" in ci.tidy_files(["native/src/a.h"], share, sources)
        assert set(ci.tidy_files([".clang-tidy"], share, sources)) == {"src/b.cc", "src/c.cc"}


def test_folders_of_the_rules_exist(ci: Any) -> None:  # noqa: ANN401
    assert [folder for _, folder in ci.WHOLE if not (ROOT / folder).is_dir()] == []
