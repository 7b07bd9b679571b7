"""Stream a chat completion."""

from __future__ import annotations

import asyncio

from aiomlc import AsyncMLCEngine


async def main() -> None:
    async with AsyncMLCEngine() as engine:
        stream = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "Who are you?"}],
            stream=True,
            temperature=0,
        )
        async for chunk in stream:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    asyncio.run(main())
