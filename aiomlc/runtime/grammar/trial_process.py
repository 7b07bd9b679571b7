"""Compile a grammar under limits of processor time and memory.

Runs as a script in a process of its own, by its path, and imports nothing of the project. Its exit
status is 0 if the compilation stayed within the limits, whether or not the grammar is valid.

Arguments: the path of llguidance's extension module, the kind of the grammar, processor time in
seconds and memory in bytes. The grammar is read from standard input. `ready` is written to standard
output before the limits are set, and at the end, in another line, the memory that was needed.
"""

from __future__ import annotations

__all__ = ("READY", "main")

import resource
import signal
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final

READY: Final = "ready"


def main(library: str, kind: str, cpu_seconds: str, num_bytes: str) -> None:
    """Compile the grammar from standard input, and compute its first mask."""
    source = sys.stdin.buffer.read().decode(errors="replace")
    llguidance = _load(library)
    # One token per byte: it takes no time to build, and compiling depends little on the vocabulary.
    tokenizer = llguidance.LLTokenizer("byte")
    in_use = _bytes_in_use()
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    _limit(float(cpu_seconds), in_use + int(num_bytes))
    _compile(llguidance, tokenizer, kind, source)
    sys.stdout.write(str(_bytes_in_use() - in_use))


def _compile(llguidance: ModuleType, tokenizer: object, kind: str, source: str) -> None:
    limits = llguidance.LLParserLimits(verbose_errors=False)
    try:
        text = source if kind == "llguidance" else _TO_TEXT[kind](llguidance.LLMatcher, source)
        matcher = llguidance.LLMatcher(tokenizer, text, limits=limits, log_level=0)
    except ValueError:  # Not a grammar, which the compilation in the parent process reports.
        return

    matcher.compute_ff_tokens()
    if not matcher.is_error() and not matcher.is_stopped():
        matcher.compute_bitmask()


_TO_TEXT = {
    "json_schema": lambda matcher, source: matcher.grammar_from_json_schema(source),
    "regex": lambda matcher, source: matcher.grammar_from_regex(source),
    "lark": lambda matcher, source: matcher.grammar_from_lark(source),
}


def _load(library: str) -> ModuleType:
    loader = ExtensionFileLoader("_lib", library)
    spec = spec_from_loader("_lib", loader)
    assert spec is not None, "made from a loader"
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _bytes_in_use() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmData:")[2].split()[0]) * 1024


def _limit(cpu_seconds: float, num_bytes: int) -> None:
    """Limit what the process uses from here on; it is killed, or aborts, beyond it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
