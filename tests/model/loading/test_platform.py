"""The platform is checked when a model is opened, not by the first request."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
import asyncio

from aiomlc import AsyncMLCEngine, BadRequestError


async def main() -> None:
    try:
        async with AsyncMLCEngine():
            print("opened")
    except BadRequestError as error:
        print(error.param, error, sep=": ")


asyncio.run(main())
"""


def test_an_unknown_instruction_set_is_an_error_of_opening() -> None:
    # In a process, since the choice is made once.
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "AIOMLC_ISA": "sse9"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert result.stdout.startswith("AIOMLC_ISA: AIOMLC_ISA must be portable, ")
    assert result.stdout.endswith("got 'sse9'\n")
