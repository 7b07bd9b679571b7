"""Run a list of prompts, at most eight at a time, and print each result when it finishes."""

from __future__ import annotations

import anyio

from aiomlc import AsyncMLCEngine


async def main() -> None:
    prompts = [f"What is {number} plus 7?" for number in range(20)]
    async with (
        AsyncMLCEngine() as engine,
        engine.generate_many(prompts, limit=8, temperature=0) as outcomes,
    ):
        async for index, completion, error in outcomes:
            result = error or (completion and completion.choices[0].message.content)
            print(prompts[index], result)


if __name__ == "__main__":
    anyio.run(main)
