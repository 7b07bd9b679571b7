"""Complete two plain prompts with one request, without the chat template."""

from __future__ import annotations

from aiomlc import MLCEngine

PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def main() -> None:
    questions = ["What is 12 plus 30?", "What is the capital of France?"]
    with MLCEngine() as engine:
        completion = engine.completions.create(
            prompt=[PROMPT.format(question) for question in questions], temperature=0
        )
    for choice in completion.choices:
        print(questions[choice.index], choice.text)


if __name__ == "__main__":
    main()
