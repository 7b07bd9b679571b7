"""Stream a completion as events, then get the complete response."""

from __future__ import annotations

import asyncio

from aiomlc import AsyncMLCEngine


async def main() -> None:
    async with (
        AsyncMLCEngine() as engine,
        engine.chat.completions.stream(
            messages=[{"role": "user", "content": "Who are you?"}], temperature=0
        ) as events,
    ):
        async for event in events:
            if event.type == "content.delta":
                print(event.delta, end="", flush=True)
        completion = await events.get_final_completion()
    print()
    if completion.usage is not None:
        print(f"{completion.usage.completion_tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())
