"""What the tests of frameworks ask, and the tool that they offer."""

from __future__ import annotations

__all__ = ("CAPITAL", "EXTRACT", "MIA", "MODEL", "PLACES", "WEATHER", "Person", "WeatherTool")

from collections.abc import Callable

import pytest
from pydantic import BaseModel

MODEL = "pebble"
CAPITAL = "What is the capital of Italy?"
WEATHER = "What is the weather in Rome?"
EXTRACT = "Extract the person: Mia is 31 years old."
PLACES = pytest.mark.parametrize("place", ["in process", "server"])


class Person(BaseModel):
    name: str
    age: int


MIA = Person(name="Mia", age=31)


class WeatherTool:
    """A tool that records the cities for which it is called."""

    def __init__(self) -> None:
        self.cities: list[str] = []

    @property
    def function(self) -> Callable[[str], str]:
        """The function, from which the frameworks derive the tool."""

        def get_weather(city: str) -> str:
            """Get the weather in a city.

            Args:
                city: The name of the city
            """
            self.cities.append(city)
            return '{"weather": "sunny"}'

        return get_weather
