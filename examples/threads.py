"""One engine for many threads; what they ask at the same time is answered together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from aiomlc import MLCEngine


def main() -> None:
    questions = [f"What is {number} plus 5?" for number in range(8)]
    with MLCEngine() as engine, ThreadPoolExecutor(8) as threads:

        def ask(question: str) -> str | None:
            answer = engine.chat.completions.create(
                messages=[{"role": "user", "content": question}], temperature=0
            )
            return answer.choices[0].message.content

        for question, answer in zip(questions, threads.map(ask, questions), strict=True):
            print(question, answer)


if __name__ == "__main__":
    main()
