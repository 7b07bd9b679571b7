"""The installations that docs/clients.md shows: tested versions, and the same by pip and by uv."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement

from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
#: What each line installs besides aiomlc.
LINES = [
    shlex.split(line) for line in re.findall(r"`pip install ('aiomlc\[openai\]' [^`]+)`", PAGE)
]
UV = shutil.which("uv")
LIMIT = 240  # Seconds, of an index that does not answer.


def _tested() -> Iterator[tuple[str, str]]:
    """Yield each framework and the version that is tested."""
    for line in (
        *PROJECT["dependency-groups"]["clients"],
        *PROJECT["dependency-groups"]["frameworks"],
    ):
        requirement = Requirement(line)
        for specifier in requirement.specifier:
            if specifier.operator == "==":
                yield requirement.name, specifier.version


def _packages(line: list[str]) -> list[str]:
    """Return what a line installs, with what the extra of aiomlc asks for in place of it."""
    extra = re.fullmatch(r"aiomlc\[(\w+)\]", line[0])
    assert extra is not None
    own = [*EXTRAS[extra[1]], *EXTRAS["serve"]]
    return [*(name for name in own if not name.startswith("aiomlc")), *line[1:]]


def test_what_is_installed_is_what_is_tested() -> None:
    tested = dict(_tested())
    assert len(LINES) == 6
    for line in LINES:
        for text in line[1:]:
            requirement = Requirement(text)
            assert requirement.specifier.contains(tested[requirement.name]), text
            # A compatible release, so that no installer goes back to an old one.
            assert [each.operator for each in requirement.specifier] == ["~="], text


@pytest.mark.thorough
@pytest.mark.timeout(2 * LIMIT + 10)
@pytest.mark.parametrize("line", LINES, ids=lambda line: line[-1])
def test_pip_and_uv_choose_the_same(line: list[str]) -> None:
    if UV is None:
        pytest.skip("uv is not installed: pip install uv")

    packages = _packages(line)
    names = {Requirement(package).name for package in packages}
    # Against each other, whatever this environment has, and without packages to be built.
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    report = _run([*pip, "--only-binary", ":all:", "--report", "-", *packages])
    installed = (item["metadata"] for item in json.loads(report)["install"])
    by_pip = {item["name"]: item["version"] for item in installed if item["name"] in names}
    resolved = _run([UV, "pip", "compile", "--quiet", "--no-header", "-"], "\n".join(packages))
    by_uv = dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==([\w.]+)", resolved, re.M))

    assert by_pip == {name: by_uv[name] for name in names}


def _run(command: list[str], text: str = "") -> str:
    try:
        result = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the package index does not answer")

    assert not re.search("No solution found|ResolutionImpossible", result.stderr), result.stderr
    if result.returncode:
        pytest.skip(f"the package index cannot be used: {result.stderr[-300:]}")

    return result.stdout
