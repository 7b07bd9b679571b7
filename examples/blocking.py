"""Stream a completion without async."""

from __future__ import annotations

from aiomlc import MLCEngine


def main() -> None:
    with MLCEngine() as engine:
        for chunk in engine.chat.completions.create(
            messages=[
                {"role": "system", "content": "Answer in upper case."},
                {"role": "user", "content": "What is the capital of France?"},
            ],
            stream=True,
            temperature=0,
        ):
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
