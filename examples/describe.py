"""Describe a picture, or answer a question about it, as the text is generated.

    .venv/bin/python examples/describe.py MODEL PICTURE "What is on the table?"

MODEL is one that reads images, such as HF://HuggingFaceTB/SmolVLM2-500M-Video-Instruct. Without a
question, the picture is described. --max-tokens NUMBER (200) ends a long answer. This needs the
extra `vision`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import anyio

from aiomlc import AsyncMLCEngine


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("picture", type=Path)
    parser.add_argument("question", nargs="?", default="Describe this picture.")
    parser.add_argument("--max-tokens", type=int, default=200)
    arguments = parser.parse_args()

    # Bytes need no permission. A server gets the picture as a `data:` URL.
    picture = await anyio.Path(arguments.picture).read_bytes()
    content = [
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "text", "text": arguments.question},
    ]
    async with (
        AsyncMLCEngine(arguments.model) as engine,
        await engine.chat.completions.create(
            messages=[{"role": "user", "content": content}],
            max_tokens=arguments.max_tokens,
            stream=True,
            stream_options={"include_usage": True},
        ) as stream,
    ):
        async for chunk in stream:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
            if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
                print(f"\n({chunk.usage.prompt_tokens_details.image_tokens} tokens of the picture)")


if __name__ == "__main__":
    anyio.run(main)
