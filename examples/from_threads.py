"""Call the engine of an event loop from worker threads, through its portal."""

from __future__ import annotations

import anyio
from anyio import to_thread

from aiomlc import AsyncMLCEngine


async def ask(engine: AsyncMLCEngine, question: str) -> str | None:
    completion = await engine.chat.completions.create(
        messages=[{"role": "user", "content": question}], temperature=0
    )
    return completion.choices[0].message.content


def work(engine: AsyncMLCEngine, question: str) -> str | None:
    """Ask a question from blocking code, which runs in a worker thread."""
    return engine.portal.call(ask, engine, question)


async def show(engine: AsyncMLCEngine, question: str) -> None:
    print(question, await to_thread.run_sync(work, engine, question))


async def main() -> None:
    async with AsyncMLCEngine() as engine, anyio.create_task_group() as tasks:
        for number in range(8):
            question = f"What is {number} plus 7?"
            tasks.start_soon(show, engine, question)


if __name__ == "__main__":
    anyio.run(main)
