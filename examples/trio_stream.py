"""A time limit from trio ends an answer; the engine serves on."""

from __future__ import annotations

import trio

from aiomlc import AsyncMLCEngine


async def main() -> None:
    async with AsyncMLCEngine() as engine:
        stream = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
            stream=True,
        )
        with trio.move_on_after(0.2):
            async with stream:  # Leaving it early frees what the answer held.
                async for chunk in stream:
                    print(chunk.choices[0].delta.content or "", end="", flush=True)
        print(" ...")

        answer = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 12 plus 30?"}], temperature=0
        )
        print(answer.choices[0].message.content)


if __name__ == "__main__":
    trio.run(main)
