"""Agent with tools: the model calls functions until it can answer, for a limited number of rounds.

    .venv/bin/python examples/agent.py
    .venv/bin/python examples/agent.py "What is the weather in Rome?"

A tool is a Python function; its signature gives the schema that the model sees, and constrains what
the model writes. The calls of a round run concurrently. An error of a tool is given to the model as
its result, so that the model can say so or call again. In the last round, the model has to answer.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
from pydantic import TypeAdapter, ValidationError

from aiomlc import AsyncMLCEngine

MAX_ROUNDS = 4
WEATHER = {"Rome": "sunny", "Paris": "cloudy"}

Tool = Callable[..., Any]


def adapt(tool: Tool) -> TypeAdapter[Any]:
    """Return what checks the arguments of a tool, and calls it with them."""
    return TypeAdapter[Any](tool)  # type: ignore[arg-type] # pydantic accepts functions, too.


def get_weather(city: str) -> dict[str, str]:
    """Get the weather in a city."""
    if city not in WEATHER:
        raise LookupError(f"no station in {city}; there are some in {', '.join(WEATHER)}")
    return {"weather": WEATHER[city]}


def get_population(city: str) -> dict[str, int]:
    """Get the number of people in a city."""
    return {"population": {"Rome": 2755309, "Paris": 2103778}[city]}


def describe(tool: Tool, *, strict: bool = True) -> dict[str, Any]:
    """Return the description of a tool for the model, from its signature and docstring.

    With `strict`, the model can only write calls that fit the signature.
    """
    parameters = adapt(tool).json_schema()
    return {
        "type": "function",
        "function": {
            "name": tool.__name__,
            "description": inspect.getdoc(tool) or "",
            "parameters": {"type": "object", **parameters},
            "strict": strict,
        },
    }


def run_tool(tools: Mapping[str, Tool], name: str, arguments: str) -> Any:  # noqa: ANN401 - any result.
    """Return the result of a call; if it is not possible, or fails, the error for the model."""
    tool = tools.get(name)
    if tool is None:
        return {"error": f"there is no tool {name}"}

    try:
        return adapt(tool).validate_json(arguments)
    except ValidationError as error:
        return {"error": f"the arguments are invalid: {error}"}
    except Exception as error:  # noqa: BLE001 - the model is to know of any.
        return {"error": f"{type(error).__name__}: {error}"}


async def run_agent(
    engine: AsyncMLCEngine,
    question: str,
    tools: Sequence[Tool],
    *,
    max_rounds: int = MAX_ROUNDS,
    strict: bool = True,
) -> str:
    """Return the answer of the model, which may call tools in all but the last round."""
    by_name = {tool.__name__: tool for tool in tools}
    descriptions = [describe(tool, strict=strict) for tool in tools]
    messages: list[Any] = [{"role": "user", "content": question}]

    async def call(request: Any, results: dict[str, Any]) -> None:  # noqa: ANN401
        name, arguments = request.function.name, request.function.arguments
        result = await anyio.to_thread.run_sync(run_tool, by_name, name, arguments)
        results[request.id] = json.dumps(result, default=str)

    for number in range(max_rounds):
        completion = await engine.chat.completions.create(
            messages=messages,
            tools=descriptions,
            tool_choice="auto" if number + 1 < max_rounds else "none",
            temperature=0,
        )
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break

        results: dict[str, Any] = {}
        async with anyio.create_task_group() as tasks:
            for request in message.tool_calls:
                tasks.start_soon(call, request, results)
        for request in message.tool_calls:  # In the order of the calls.
            result = results[request.id]
            print(f"{request.function.name} {request.function.arguments} -> {result}")
            messages.append({"role": "tool", "tool_call_id": request.id, "content": result})

    return message.content or ""


async def main() -> None:
    questions = sys.argv[1:] or ["What is the weather in Rome?", "How many people live in Paris?"]
    async with AsyncMLCEngine() as engine:
        for question in questions:
            print(question)
            print(await run_agent(engine, question, [get_weather, get_population]))


if __name__ == "__main__":
    anyio.run(main)
