"""What the tests of the adapters ask, and what the engine answers without an adapter."""

from __future__ import annotations

__all__ = ("CAPITAL", "EXTRACT", "STORY", "WEATHER", "Person", "ask", "get_weather")

from collections.abc import Callable

from pydantic import BaseModel

from aiomlc import AsyncMLCEngine, ChatCompletion, ChatMessageParam

CAPITAL = "What is the capital of Italy?"
EXTRACT = "Extract the person: Mia is 31 years old."
STORY = "Tell me a story about a fox called Rosa."
WEATHER = "What is the weather in Rome?"


class Person(BaseModel):
    name: str
    age: int


def get_weather(cities: list[str]) -> Callable[[str], str]:
    """Return a tool, a function that records the cities that it is called for."""

    def get_weather(city: str) -> str:
        """Get the weather in a city.

        Args:
            city: The name of the city
        """
        cities.append(city)
        return '{"weather": "sunny"}'

    return get_weather


async def ask(engine: AsyncMLCEngine, prompt: str) -> ChatCompletion:
    """Return the completion of one question at temperature 0."""
    messages: list[ChatMessageParam] = [{"role": "user", "content": prompt}]
    return await engine.chat.completions.create(messages=messages, temperature=0)
