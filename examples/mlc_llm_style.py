"""Use the engine as in MLC LLM programs: construct, create, terminate."""

from __future__ import annotations

import asyncio

from aiomlc import AsyncMLCEngine


async def main() -> None:
    engine = AsyncMLCEngine()
    async for chunk in await engine.chat.completions.create(
        messages=[{"role": "user", "content": "My name is Ada."}],
        stream=True,
    ):
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()
    engine.terminate()


if __name__ == "__main__":
    asyncio.run(main())
