"""Run the tool-calling loop: the model calls a function, receives its result and answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiomlc import AsyncMLCEngine

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "The name of the city"}},
                "required": ["city"],
            },
        },
    }
]


def get_weather(city: str) -> dict[str, Any]:
    return {"weather": "sunny" if city == "Rome" else "cloudy"}


async def main() -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    async with AsyncMLCEngine() as engine:
        while True:
            completion = await engine.chat.completions.create(
                messages=messages, tools=TOOLS, temperature=0
            )
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break

            for call in message.tool_calls:
                print(call.function.name, call.function.arguments)
                result = get_weather(**json.loads(call.function.arguments))
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
                )

    print(message.content)


if __name__ == "__main__":
    asyncio.run(main())
