"""Trial compilation of grammars that may be costly, in a limited process.

llguidance limits most of its work, but not all: an intersection of patterns, or `multipleOf` with a
large number, can take minutes and gigabytes, and cannot be interrupted. Grammars that may contain
such work are first compiled in a process of their own, which takes about 20 ms of processor time.
"""

from __future__ import annotations

__all__ = ("Trial", "llguidance_library", "may_be_costly")

import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, final

from aiomlc import errors
from aiomlc.runtime.grammar.trial_process import READY

if TYPE_CHECKING:
    from aiomlc.runtime.grammar.grammar import Grammar

#: The limits of a compilation: processor time in seconds, and memory in bytes.
CPU_SECONDS = 1.0
MEMORY_BYTES = 64 << 20
_CHEAP_BYTES = 1 << 20  # What a grammar takes, at most, that need not be tried out.
# A process that gets no processor time is not waited for any longer.
_WALL_SECONDS = 10.0
_CANCELLED = "the compilation of the grammar was cancelled"
_SCRIPT = Path(__file__).with_name("trial_process.py")

# Up to these, no grammar was found that takes longer than 100 ms.
_MAX_CHARACTERS = 8_000
_MAX_PATTERNS = 3
_MAX_REPETITIONS = 10_000
_MAX_ALTERNATIVES = 50
_COSTLY_KEYWORD = re.compile("allOf|multipleOf|patternProperties")
# Intersection and complement of terminals, and escapes of letters, which could hide a keyword.
_COSTLY_LARK = re.compile(r"[&~]|\\u00[4-7]")
_PATTERN = re.compile("pattern|format|%regex")
_REPETITION = re.compile(r"\{ *(\d*) *,? *(\d*) *\}")
_ALTERNATIVES = re.compile("anyOf|oneOf")


def may_be_costly(grammar: Grammar) -> bool:
    """Return whether the compilation could exceed the limits, judged by the text of the grammar."""
    source = grammar.source
    return (
        len(source) > _MAX_CHARACTERS
        or _COSTLY_KEYWORD.search(source) is not None
        or (grammar.kind in ("lark", "llguidance") and _COSTLY_LARK.search(source) is not None)
        or len(_PATTERN.findall(source)) > _MAX_PATTERNS
        or len(_ALTERNATIVES.findall(source)) > _MAX_ALTERNATIVES
        or _num_repetitions(source) > _MAX_REPETITIONS
    )


def _num_repetitions(source: str) -> float:
    """Return how often nested repetitions may repeat: the product of all bounds."""
    bounds = [
        max((b for b in match if b), key=len, default="1") for match in _REPETITION.findall(source)
    ]
    if any(len(bound) > len(str(_MAX_REPETITIONS)) for bound in bounds):
        return math.inf

    return math.prod(float(bound) for bound in bounds)


@final
class Trial:
    """The trial compilation of one grammar, in a thread; another thread may cancel it."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.is_needed: bool = may_be_costly(grammar)
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False

    def run(self) -> int:
        """Compile the grammar in a process if it may be costly. Blocks for at most 10 seconds.

        Returns:
            An estimate of the bytes that the compiled grammar takes.

        Raises:
            GrammarError: If the compilation takes more processor time or memory than allowed.
            RequestFailedError: If it was cancelled, or the process cannot be started.
        """
        if not self.is_needed:
            return _CHEAP_BYTES

        process = self._start()
        output = self._communicate(process).decode(errors="replace")
        ready, _, num_bytes = output.partition("\n")
        if self._is_cancelled:
            raise errors.RequestFailedError(_CANCELLED)
        if ready != READY:
            raise errors.RequestFailedError(
                "the process that tries out the grammar cannot start: "
                f"it ended with status {process.returncode}"
            )
        if process.returncode != 0:
            raise errors.GrammarError(
                "the grammar is too complex: compiling it takes more than "
                f"{CPU_SECONDS:g} s or {MEMORY_BYTES >> 20} MB"
            )

        return max(_CHEAP_BYTES, int(num_bytes))

    def _communicate(self, process: subprocess.Popen[bytes]) -> bytes:
        source = self._grammar.source.encode(errors="replace")
        try:
            output, _ = process.communicate(source, _WALL_SECONDS)
        except subprocess.TimeoutExpired as error:
            return error.stdout or b""
        else:
            return output
        finally:
            with process:
                process.kill()

    def cancel(self) -> None:
        """End the process, or keep it from starting. Thread-safe and idempotent."""
        with self._lock:
            self._is_cancelled = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        limits = (self._grammar.kind, str(CPU_SECONDS), str(MEMORY_BYTES))
        command = [sys.executable, "-I", "-S", str(_SCRIPT), str(llguidance_library()), *limits]
        with self._lock:
            if self._is_cancelled:
                raise errors.RequestFailedError(_CANCELLED)
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise errors.RequestFailedError(
                    f"cannot start the process that tries out the grammar: {error}"
                ) from None

            return self._process


def llguidance_library() -> Path:
    """Return the path of llguidance's extension module, which also exports its C interface.

    Raises:
        GrammarError: If llguidance is not installed.
    """
    spec = importlib.util.find_spec("llguidance")
    if spec is not None and spec.submodule_search_locations:
        for path in Path(spec.submodule_search_locations[0]).glob("_lib*.so"):
            return path

    raise errors.GrammarError("structured output needs llguidance: pip install llguidance")
