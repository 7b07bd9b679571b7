"""Print the calls of make that a change needs, one in a line, and why to standard error.

`python .ci/plan.py [--base COMMIT]`. Every change runs what `make test` runs, the lints and the
pages. Beyond that, the paths that changed since the base call for more, and the number of commits
modulo 8 selects an eighth of all the rest: of the Python tests that `make test` leaves out, of the
files for clang-tidy, and one of the expensive steps. So eight consecutive commits run everything.

The base is the commit given, or else the newest one at least four hours older than the last.
"""

from __future__ import annotations

__all__ = ("EXPENSIVE", "SHARES", "dependents", "kernel_quarter", "plan", "tidy_files")

import argparse
import re
import subprocess
import sys
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARES = 8
QUARTERS = 4

# The expensive steps of each share. Of the kernels' tests, sanitized or not, a quarter runs.
EXPENSIVE = (
    "engine-sanitized",
    "kernel-sanitized",
    "kernel-sanitized",
    "kernel-sanitized",
    "kernel-sanitized",
    "soak-address mutations-sanitize",
    "soak-thread opencl soak-opencl",
    "wheel frameworks converter soak",
)

# Paths, and the expensive steps that a change of them needs, whatever the share is.
RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"native/(src|tests)/(kernels|platform|weights)/|native/CMakeLists", ("kernel-sanitized",)),
    (r"native/(src|tests)/(?!kernels/|weights/|ffi/)|native/CMakeLists", ("engine-sanitized",)),
    (r"native/src/ffi/|benchmarks/(soak|sanitized)", ("soak-address",)),
    (r"native/src/(collectives|engine|platform)/", ("soak-thread",)),
    (r"(gguf|weights/formats|validation)/[^/]+\.py$|native/src/weights/", ("mutations-sanitize",)),
    (r"^aiomlc/(gguf|models/families)/|llama_cpp_converter", ("converter",)),
    (
        r"^native/opencl/|opencl|page_table_state|^aiomlc/compiler/backends/tvm/|/native/device\.py$",
        ("opencl",),
    ),
    (r"^(packaging/|pyproject\.toml)", ("wheel", "frameworks")),
    (r"^aiomlc/(integrations|api/protocol)/|^tests/frameworks/", ("frameworks",)),
)

# Paths, and the folders whose tests all run.
WHOLE: tuple[tuple[str, str], ...] = (
    (
        r"^aiomlc/(compiler|models|weights|gguf)/|^native/src/(kernels|model|ffi/cpu)/",
        "tests/model/families",
    ),
    (r"^aiomlc/weights/|^native/src/weights/", "tests/model/weights"),
    (r"^native/src/(engine|scheduling)/", "tests/model/engine"),
    (r"^native/src/(collectives|model/shard)|^aiomlc/.*/(shard|processors)", "tests/model/shards"),
    (r"^aiomlc/runtime/grammar/|^native/src/grammar/", "tests/unit/runtime/grammar"),
    (r"^(tests/plugins/|tests/conftest)", "tests/unit/plugins"),
)

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# What includes TVM's headers is not checked.
_NOT_TIDY = re.compile(
    r"src/ffi/|src/model/(tvm_|tensor_memory|virtual_machine|paged_kv_state|page_table_state)"
)


@dataclass
class Plan:
    """The calls of make for a change."""

    calls: list[list[str]]
    reasons: list[str] = field(default_factory=list)


def plan(changed: Collection[str], share: int, sources: Mapping[str, str]) -> Plan:
    """Return what runs.

    Args:
        changed: The paths that changed, relative to the project.
        share: From 0 to 7.
        sources: The text of each file of `native/src` by its path in `native`.
    """
    needed = {
        step: path
        for pattern, names in reversed(RULES)
        if (path := next((path for path in changed if re.search(pattern, path)), None)) is not None
        for step in names
    }
    steps = dict.fromkeys(EXPENSIVE[share].split(), f"share {share}")
    steps |= {step: f"{path} changed" for step, path in needed.items()}

    beside = ["native", "pytest", "lint-python", "docs", "tidy"]
    variables = [f"THOROUGH={share}/{SHARES}", f"KERNEL_SHARE={kernel_quarter(share)}/{QUARTERS}"]
    halves = [half for half in ("engine", "kernel") if f"{half}-sanitized" in steps]
    if halves:
        beside.append("native-sanitize")
        variables.append(f"HALVES={' '.join(halves)}")
        # If only its turn calls for the sanitized half, the other build does not run the same.
        plain = [
            half
            for half in ("engine", "kernel")
            if half not in halves or f"{half}-sanitized" in needed
        ]
        variables.append(f"NATIVE_HALVES={' '.join(plain)}")
    whole = sorted({folder for pattern, folder in WHOLE if _matches(pattern, changed)})
    if whole:
        variables.append(f"PYTEST_ARGS={' '.join(f'--whole {folder}' for folder in whole)}")
    variables.append(f"TIDY={' '.join(tidy_files(changed, share, sources))}")
    # All that fails is reported.
    calls = [["-k", "-j2", *beside, *variables]]
    after = [step for step in steps if not step.endswith("-sanitized")]
    if after:
        calls.append(["-k", *after, "SECONDS=30"])
    reasons = [f"share {share} of {SHARES} of the Python tests and of clang-tidy"]
    reasons += [f"{step}: {reason}" for step, reason in steps.items()]
    reasons += [f"all of {folder}" for folder in whole]
    return Plan(calls, reasons)


def kernel_quarter(share: int) -> int:
    """Return the quarter of the kernels' tests that a share runs; sanitized ones from 1 to 4."""
    return (share - 1) % QUARTERS


def _matches(pattern: str, paths: Collection[str]) -> bool:
    return any(re.search(pattern, path) for path in paths)


def _includes(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the files of the core that each file includes, by path in `native`."""
    return {
        path: {f"src/{name}" for name in _INCLUDE.findall(text)} & sources.keys()
        for path, text in sources.items()
    }


def dependents(changed: Collection[str], sources: Mapping[str, str]) -> set[str]:
    """Return the files that changed, and all that include one of them, directly or not."""
    included = _includes(sources)
    found = sources.keys() & set(changed)
    while True:
        more = {path for path, names in included.items() if names & found} - found
        if not more:
            return found

        found = found | more


def tidy_files(changed: Collection[str], share: int, sources: Mapping[str, str]) -> list[str]:
    """Return the files for clang-tidy: what a change reaches, and a share of the others."""
    native = [path.removeprefix("native/") for path in changed if path.startswith("native/src/")]
    needed = dependents(native, sources)
    if ".clang-tidy" in changed:
        needed = set(sources)
    return sorted(
        path
        for path in sources
        if path.endswith(".cc")
        and not _NOT_TIDY.match(path)
        and (path in needed or zlib.crc32(path.encode()) % SHARES == share)
    )


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _default_base() -> str:
    time = int(_git("log", "-1", "--format=%ct")) - 4 * 3600
    return _git("rev-list", "-1", f"--before={time}", "HEAD") or _git("rev-parse", "HEAD")


def main() -> None:
    """Print the plan of the last commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="the commit before the change")
    base = parser.parse_args().base or _default_base()
    changed = _git("diff", "--name-only", base, "HEAD").splitlines()
    native = ROOT / "native"
    sources = {
        str(path.relative_to(native)): path.read_text()
        for path in native.glob("src/**/*.*")
        if path.suffix in (".cc", ".h")
    }
    share = int(_git("rev-list", "--count", "HEAD")) % SHARES
    result = plan(changed, share, sources)
    print(f"{len(changed)} files changed since {base[:12]}", file=sys.stderr)
    print(*result.reasons, sep="\n", file=sys.stderr)
    for call in result.calls:
        print("\t".join(call))


if __name__ == "__main__":
    main()
