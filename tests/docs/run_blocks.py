"""Run the Python blocks of a page, one after the other, and report what each has printed.

Reads JSON from standard input and writes JSON to standard output:
`{"model": ..., "reranker": ..., "blocks": [{"place": ..., "line": ..., "text": ..., "names": {}}]}`
to `[{"output": ..., "error": ...}]`. A fragment, which awaits at its top level, runs in an event
loop, and with an open engine if it uses `engine` without making one: that of the reranker if it
calls `rerank`.
"""

from __future__ import annotations

__all__ = ()

import ast
import inspect
import io
import json
import sys
import traceback
from contextlib import redirect_stdout
from types import CodeType, FunctionType, ModuleType
from typing import Any

import anyio

from aiomlc import AsyncMLCEngine


def _run(block: dict[str, Any], model: str | None, reranker: str | None) -> None:
    # The lines of a traceback are those of the page.
    text = "\n" * (block["line"] - 1) + block["text"]
    code = compile(text, block["place"], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    main = sys.modules["__main__"] = ModuleType("__main__")  # Where pydantic looks for names.
    main.__dict__.update(block["names"])
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, main.__dict__)
        return

    model = reranker if "rerank" in code.co_names else model
    anyio.run(_run_fragment, code, text, main.__dict__, model)


async def _run_fragment(
    code: CodeType, text: str, names: dict[str, Any], model: str | None
) -> None:
    stored = {
        node.id
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if "engine" in stored or "engine" not in code.co_names:
        await FunctionType(code, names)()
    else:
        async with AsyncMLCEngine(model) as names["engine"]:
            await FunctionType(code, names)()


def _main() -> None:
    request = json.load(sys.stdin)
    results = []
    for block in request["blocks"]:
        error = ""
        with redirect_stdout(io.StringIO()) as output:
            try:
                _run(block, request["model"], request["reranker"])
            except BaseException:  # noqa: BLE001 - The report names it.
                error = traceback.format_exc()

        results.append({"output": output.getvalue(), "error": error})

    json.dump(results, sys.stdout)


if __name__ == "__main__":
    _main()
