"""Check that no tier file defines a symbol that the linker may give to code of another tier.

The linker keeps one copy of an inline function. If a file that is compiled for AVX-512 defines one
that the portable code calls as well, that copy may run on a processor without AVX-512. So every
weak symbol of these files must name its own tier, and every global one must be a known entry point.

    python native/tests/check_isa_leaks.py build/native/compile_commands.json
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

_TIER_FILE = re.compile(r"/kernels/.*_(amx|avx2|avx512|avxvnni|i8mm|neon)\.cc$")
# A template over one of these has a copy of its own in every tier.
_OWN = re.compile(r"\b(Avx2Lanes|Avx512Lanes|NeonLanes|AmxTiles)\b|^DW\.ref\.")
_ENTRY_POINT = re.compile(
    r"^aiomlc::(AttendTile\w+\(|\w+RowKernels\(|SplitRowsAvx512\(|(Grouped|Q4Streams|ChannelStreams)\w+\(|kLinear\w+$|kChannel\w+$|kQ4\w+$|kGrouped\w+$|kBF16Amx$)"
)
_LEVELS = ("-O0", "-O3")


def main(database: Path) -> int:
    leaks = [
        f"{Path(entry['file']).name} {level}: {symbol}"
        for entry in json.loads(database.read_text())
        if _TIER_FILE.search(entry["file"])
        for level in _LEVELS
        for symbol in leaked_symbols(entry, level)
    ]
    print(*leaks, sep="\n")
    return 1 if leaks else 0


def leaked_symbols(entry: dict[str, str], level: str) -> list[str]:
    with tempfile.NamedTemporaryFile(suffix=".o") as compiled:
        arguments = shlex.split(entry["command"])
        arguments[arguments.index("-o") + 1] = compiled.name
        subprocess.run([*arguments, level], cwd=entry["directory"], check=True)
        listing = subprocess.run(
            ["nm", "--demangle", "--defined-only", compiled.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return [symbol for symbol in map(_leak, listing.splitlines()) if symbol is not None]


def _leak(line: str) -> str | None:
    kind, symbol = re.match(r"[0-9a-f]*\s+(\w)\s+(.*)", line).groups()  # type: ignore[union-attr]
    if kind in "WVu":
        return None if _OWN.search(symbol) else symbol
    return None if kind.islower() or _ENTRY_POINT.search(symbol) else symbol


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
