"""Limit the time of a stream with a trio cancel scope; the engine keeps serving."""

from __future__ import annotations

import trio

from aiomlc import AsyncMLCEngine


async def tell_stories(engine: AsyncMLCEngine) -> None:
    messages = [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]
    while True:
        async with engine.chat.completions.create(messages=messages, stream=True) as stream:
            async for chunk in stream:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
        print()


async def main() -> None:
    async with AsyncMLCEngine() as engine:
        with trio.move_on_after(0.5):  # Ends the stream in the middle, which frees its memory.
            await tell_stories(engine)
        print(" ...")

        completion = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 12 plus 30?"}], temperature=0
        )
        print(completion.choices[0].message.content)


if __name__ == "__main__":
    trio.run(main)
