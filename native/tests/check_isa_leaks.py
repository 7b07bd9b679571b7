"""Check that no tier file defines a symbol that the linker may give to code of another tier.

The linker keeps one copy of an inline function. If a file that is compiled for AVX-512 defines one
that the portable code calls as well, that copy may run on a processor without AVX-512. So every
weak symbol of these files must name its own tier, and every global one must be a known entry point.
The files that were built are checked, and the same compiled without optimization, where fewer
functions are inlined.

    python native/tests/check_isa_leaks.py build/native/compile_commands.json
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_TIER_FILE = re.compile(r"/kernels/.*_(amx|avx2|avx512|avx512bf16|avxvnni|i8mm|neon)\.cc$")
# A template over one of these has a copy of its own in every tier.
_OWN = re.compile(r"\b(Avx2Lanes|Avx512Lanes|Avx512Pairs|NeonLanes|AmxTiles)\b|^DW\.ref\.")
_ENTRY_POINT = re.compile(
    r"^aiomlc::(AttendTile\w+\(|\w+R(ow|ecurrent)Kernels\(|(SplitRows|QuantizeSigned)Avx512\(|(Grouped|FewGrouped|FewProgressive|Progressive|Q4Streams|ChannelStreams)\w+\(|kLinear\w+$|kChannel\w+$|kQ4\w+$|kGrouped\w+$|k(BF16|Progressive)\w+$|kAttendPairs\w+$)"
)


def main(database: Path) -> int:
    entries = [
        entry for entry in json.loads(database.read_text()) if _TIER_FILE.search(entry["file"])
    ]
    if not entries:
        print(f"{database} has no file of a tier")
        return 1

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = list(threads.map(leaked_symbols, entries))

    leaks = [leak for leaks_of_file in found for leak in leaks_of_file]
    print(*leaks, sep="\n")
    return 1 if leaks else 0


def leaked_symbols(entry: dict[str, str]) -> list[str]:
    arguments = shlex.split(entry["command"])
    output = arguments.index("-o") + 1
    built = Path(entry["directory"], arguments[output])
    with tempfile.NamedTemporaryFile(suffix=".o") as unoptimized:
        arguments[output] = unoptimized.name
        subprocess.run([*arguments, "-O0"], cwd=entry["directory"], check=True)
        symbols = {
            "as built": _leaks(built),
            "-O0": _leaks(Path(unoptimized.name)),
        }

    name = Path(entry["file"]).name
    return [f"{name} {level}: {symbol}" for level in symbols for symbol in symbols[level]]


def _leaks(compiled: Path) -> list[str]:
    command = ["nm", "--demangle", "--defined-only", str(compiled)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [symbol for symbol in map(_leak, listing.splitlines()) if symbol is not None]


def _leak(line: str) -> str | None:
    kind, symbol = re.match(r"[0-9a-f]*\s+(\w)\s+(.*)", line).groups()  # type: ignore[union-attr]
    if kind in "WVu":
        return None if _OWN.search(symbol) else symbol
    return None if kind.islower() or _ENTRY_POINT.search(symbol) else symbol


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
