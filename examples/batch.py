"""Answer a file of requests in OpenAI's batch format, and answer what was added to it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import anyio

from aiomlc import AsyncMLCEngine
from aiomlc.batch import run_batch


def add_requests(path: Path, numbers: range) -> None:
    with path.open("a", encoding="utf-8") as file:
        for number in numbers:
            messages = [{"role": "user", "content": f"What is {number} plus 7?"}]
            request = {
                "custom_id": f"sum-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"messages": messages, "temperature": 0},
            }
            file.write(json.dumps(request) + "\n")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        requests, answers = Path(directory, "in.jsonl"), Path(directory, "out.jsonl")
        async with AsyncMLCEngine() as engine:
            add_requests(requests, range(1, 9))
            await run_batch(engine, requests, answers)
            add_requests(requests, range(9, 13))  # As a run that was killed leaves some.
            summary = await run_batch(engine, requests, answers, max_in_flight=8)

        print(f"{summary.written} of {summary.total} answers were missing")
        text = await anyio.Path(answers).read_text(encoding="utf-8")
        for line in text.splitlines():
            answer = json.loads(line)
            message = answer["response"]["body"]["choices"][0]["message"]
            print(answer["custom_id"], message["content"])


if __name__ == "__main__":
    anyio.run(main)
