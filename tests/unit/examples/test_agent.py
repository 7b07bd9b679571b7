"""The example agent: its calls, the errors of its tools, and its rounds."""

from __future__ import annotations

import json

import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.testing import FakeCore, fake_loader
from examples.agent import describe, get_population, get_weather, run_agent, run_tool

pytestmark = pytest.mark.timeout(30)
TOOLS = {"get_weather": get_weather, "get_population": get_population}


def call_of(name: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


async def answer(replies: list[str], *, max_rounds: int = 4) -> tuple[str, list[str]]:
    """Return the agent's answer, and the prompts that the model got."""
    core = FakeCore(replies)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        text = await run_agent(
            engine, "Q", list(TOOLS.values()), max_rounds=max_rounds, strict=False
        )
    return text, [bytes(prompt).decode() for prompt in core.prompts]


async def test_results_reach_the_model_in_the_order_of_its_calls() -> None:
    calls = call_of("get_population", city="Paris") + call_of("get_weather", city="Rome")

    text, prompts = await answer([calls, "Both."])

    assert text == "Both."
    assert prompts[1].index('{"population": 2103778}') < prompts[1].index('{"weather": "sunny"}')


async def test_the_error_of_a_tool_reaches_the_model() -> None:
    text, prompts = await answer([call_of("get_weather", city="Oslo"), "There is no station."])

    assert text == "There is no station."
    assert "LookupError: no station in Oslo" in prompts[1]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("get_wether", "{}", "there is no tool get_wether"),
        ("get_weather", "{}", "the arguments are invalid"),
        ("get_weather", '{"city": ', "the arguments are invalid"),
        ("get_population", '{"city": "Oslo"}', "KeyError: 'Oslo'"),
    ],
)
def test_a_call_that_fails_has_an_error_as_its_result(
    name: str, arguments: str, error: str
) -> None:
    assert error in run_tool(TOOLS, name, arguments)["error"]


async def test_the_last_round_offers_no_tools() -> None:
    call = call_of("get_weather", city="Rome")

    _, prompts = await answer([call, call, "Enough."], max_rounds=3)
    text, _ = await answer(["At once."], max_rounds=1)

    assert ["<tools>" in prompt for prompt in prompts] == [True, True, False]
    assert text == "At once."


def test_a_signature_becomes_a_closed_schema() -> None:
    function = describe(get_weather)["function"]

    assert function["name"] == "get_weather"
    assert function["description"] == "Get the weather in a city."
    assert function["parameters"]["properties"]["city"]["type"] == "string"
    assert function["parameters"]["required"] == ["city"]
    assert function["parameters"]["additionalProperties"] is False
