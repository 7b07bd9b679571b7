"""Run MLC LLM's own tests, unchanged, with only `examples/drop_in` on the path.

    python -m tests.mlc_llm_suite.run MLC_LLM/tests/python LLAMA_CPP/models

The arguments are folders of checkouts of https://github.com/mlc-ai/mlc-llm and
https://github.com/ggml-org/llama.cpp; the second has the vocabularies. The tests of the server use
the ports 8000, 8001 and 8321. It fails if a function fails that `known.py` does not name, or the
reverse. The host of their picture is on this machine, which needs openssl.
"""

from __future__ import annotations

__all__ = ()

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import anyio

from tests.mlc_llm_suite.image_host import image_host
from tests.mlc_llm_suite.image_reader import write_image_reader
from tests.mlc_llm_suite.known import FAILING, NOT_APPLICABLE, SUITES
from tests.mlc_llm_suite.models import write_models

_DROP_IN = Path(__file__).parents[2] / "examples" / "drop_in"
_OPTIONS = (
    *("-c", os.devnull, "--rootdir", ".", "-q", "--tb=short", "--continue-on-collection-errors"),
    # The event loop of these tests is asyncio.
    *("-o", "anyio_mode=auto", "-k", "not trio", "--timeout", "300"),
)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("tests", type=Path, help="MLC LLM's folder tests/python")
    parser.add_argument("vocabularies", type=Path, help="llama.cpp's folder models")
    parser.add_argument("--suite", choices=list(SUITES), action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        # Beside a copy there is no package mlc_llm, which a test would put on the path.
        tests = work / "tests" / "python"
        shutil.copytree(options.tests, tests)
        (work / "models").mkdir()
        for write in (write_models, write_image_reader):
            anyio.run(write, work / "models", options.vocabularies)
        (tests / "dist").symlink_to(work / "models" / "dist")
        is_whole = True
        with image_host(work) as host:
            for suite in options.suite or SUITES:
                outcomes = _outcomes(suite, tests, work / "models", host)
                is_whole &= _report(suite, tests, outcomes)

    return 0 if is_whole else 1


def _outcomes(
    suite: str, tests: Path, models: Path, host: Mapping[str, str]
) -> Mapping[str, list[str | None]]:
    """Return the problems of the cases of each function that ran; None is a case that passed."""
    served, files = SUITES[suite]
    report = models.parent / "report.xml"
    library = str(models / "encoder" / "lib.so")
    environment = {
        **os.environ,
        **host,
        "PYTHONPATH": os.pathsep.join([str(_DROP_IN), host["PYTHONPATH"]]),
        "AIOMLC_HOME": str(models.parent / "home"),
        "MLC_LLM_TEST_MODEL_PATH": str(models),
        "MLC_SERVE_EMBEDDING_MODEL_LIB": library,
        "MLC_SERVE_MODEL_LIB": str(models / (served or "served") / "lib.so"),
    }
    command = [sys.executable, "-m", "pytest", *_OPTIONS, f"--junitxml={report}", *files]
    subprocess.run(command, cwd=tests, env=environment, stdout=subprocess.DEVNULL, check=False)
    outcomes: dict[str, list[str | None]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").removeprefix("python.").replace(".", "/")
        name = case.get("name", "").partition("[")[0]
        problem = next(iter(case), None)
        text = None if problem is None else problem.get("message", "") or problem.tag
        outcomes.setdefault(f"{file}.py::{name}", []).append(text)

    return outcomes


def _report(suite: str, tests: Path, outcomes: Mapping[str, list[str | None]]) -> bool:
    """Print a table of the files; return whether exactly the known functions fail."""
    is_whole = True
    total = passed = cases = passed_cases = 0
    print(f"\n{suite}")
    for file in SUITES[suite][1]:
        functions = [f"{file}::{name}" for name in _functions(tests / file)]
        functions = [function for function in functions if function not in NOT_APPLICABLE]
        failing = [function for function in functions if not _passes(outcomes.get(function))]
        total, passed = total + len(functions), passed + len(functions) - len(failing)
        for function in functions:
            problems = outcomes.get(function, ["it does not run"])
            cases, passed_cases = cases + len(problems), passed_cases + problems.count(None)
        print(f"  {file}: {len(functions) - len(failing)} of {len(functions)}")
        for function in sorted({*failing, *(each for each in FAILING if each in functions)}):
            is_whole &= _explain(function, outcomes.get(function))
    print(f"  functions: {passed} of {total}; their cases: {passed_cases} of {cases}")
    return is_whole


def _explain(function: str, problems: list[str | None] | None) -> bool:
    """Print why a function fails; return whether that is known."""
    name = function.partition("::")[2]
    if _passes(problems):
        print(f"    {name}: PASSES NOW, known.py says: {FAILING[function]}")
        return False

    first = next((text for text in problems or () if text is not None), "it does not run")
    print(f"    {name}: {FAILING.get(function) or 'UNKNOWN: ' + first.partition(chr(10))[0]}")
    return function in FAILING


def _passes(problems: list[str | None] | None) -> bool:
    return bool(problems) and not any(problems or ())


def _functions(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_":
            yield node.name


if __name__ == "__main__":
    raise SystemExit(_main())
