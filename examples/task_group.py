"""Send 32 requests at once from a task group; the engine batches them."""

from __future__ import annotations

import anyio

from aiomlc import AsyncMLCEngine


async def ask(engine: AsyncMLCEngine, question: str, answers: dict[str, str]) -> None:
    completion = await engine.chat.completions.create(
        messages=[{"role": "user", "content": question}], temperature=0, max_tokens=64
    )
    answers[question] = completion.choices[0].message.content or ""


async def main() -> None:
    questions = [f"What is {first} plus {second}?" for first in range(8) for second in range(2, 6)]
    answers: dict[str, str] = {}
    async with AsyncMLCEngine() as engine, anyio.create_task_group() as tasks:
        for question in questions:
            tasks.start_soon(ask, engine, question, answers)

    for question in questions:
        print(question, answers[question])


if __name__ == "__main__":
    anyio.run(main)
