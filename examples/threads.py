"""Share one engine between threads; concurrent requests are batched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from aiomlc import MLCEngine


def main() -> None:
    questions = [f"What is {number} plus 7?" for number in range(8)]
    with MLCEngine() as engine, ThreadPoolExecutor(8) as executor:

        def ask(question: str) -> str | None:
            completion = engine.chat.completions.create(
                messages=[{"role": "user", "content": question}], temperature=0
            )
            return completion.choices[0].message.content

        for question, answer in zip(questions, executor.map(ask, questions), strict=True):
            print(question, answer)


if __name__ == "__main__":
    main()
