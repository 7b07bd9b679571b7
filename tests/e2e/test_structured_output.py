"""Structured output with the bundled model and llguidance."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Literal

import anyio
import pytest
from anyio import CapacityLimiter, create_task_group
from pydantic import BaseModel, Field

from aiomlc import AsyncMLCEngine, BadRequestError, GrammarError, IncompleteAnswerError, MLCEngine
from aiomlc.api.session.loader import open_model
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from tests.e2e.random_schemas import random_schema

QUESTION = [{"role": "user", "content": "Mia is 31 years old and lives in Rome."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"enum": ["UTC", "CET"]}},
            "required": ["zone"],
            "additionalProperties": False,
        },
    },
}


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    city: Literal["Rome", "Paris"] | None


class NeverValid(BaseModel):
    """A type whose validation fails although its schema can be satisfied."""

    name: Literal["a", "b"]

    def model_post_init(self, context: Any) -> None:  # noqa: ANN401
        raise ValueError("never")


async def test_random_schemas_give_valid_documents_at_temperature_1() -> None:
    import jsonschema

    limiter = CapacityLimiter(32)
    reasons: list[str] = []

    async def run(engine: AsyncMLCEngine, seed: int) -> None:
        schema = random_schema(seed)
        async with limiter:
            completion = await engine.chat.completions.create(
                messages=QUESTION,
                temperature=1.0,
                seed=seed,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": schema},
                },
            )
        choice = completion.choices[0]
        jsonschema.validate(json.loads(choice.message.content or ""), schema)
        reasons.append(choice.finish_reason)

    with anyio.fail_after(100):
        async with AsyncMLCEngine() as engine, create_task_group() as tasks:
            for seed in range(200):
                tasks.start_soon(run, engine, seed)

    assert reasons == ["stop"] * 200


async def test_constrained_stream_has_the_text_of_the_completion() -> None:
    options: dict[str, Any] = {
        "messages": QUESTION,
        "temperature": 1.0,
        "seed": 3,
        "response_format": {"type": "json_object", "schema": Person.model_json_schema()},
    }
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(**options)
        stream = await engine.chat.completions.create(**options, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == completion.choices[0].message.content


async def test_constrained_output_does_not_depend_on_the_batch() -> None:
    async def complete_all(engine: AsyncMLCEngine, *, batched: bool) -> list[str | None]:
        results: list[str | None] = [None] * 12

        async def run(seed: int) -> None:
            json_format = {"type": "json_object", "schema": random_schema(seed)}
            completion = await engine.chat.completions.create(
                messages=QUESTION,
                seed=seed,
                max_tokens=60,
                temperature=1.0,
                response_format=json_format if seed % 2 else None,
            )
            results[seed] = completion.choices[0].message.content

        async with create_task_group() as tasks:
            for seed in range(12):
                if batched:
                    tasks.start_soon(run, seed)
                else:
                    await run(seed)

        return results

    async with AsyncMLCEngine() as engine:
        batched = await complete_all(engine, batched=True)
        assert batched == await complete_all(engine, batched=False)


@pytest.mark.parametrize("seed", range(3))
def test_parse_returns_a_value_of_the_type(seed: int) -> None:
    with MLCEngine() as engine:
        completion = engine.chat.completions.parse(
            messages=QUESTION, response_format=Person, temperature=1.0, seed=seed
        )

    message = completion.choices[0].message
    assert message.parsed == Person.model_validate_json(message.content or "")


def test_streamed_partial_value_grows_to_the_parsed_value() -> None:
    with (
        MLCEngine() as engine,
        engine.chat.completions.stream(messages=QUESTION, response_format=Person) as events,
    ):
        deltas = [event for event in events if event.type == "content.delta"]
        message = events.get_final_completion().choices[0].message

    assert deltas[-1].parsed == json.loads(message.content or "")
    assert message.parsed == Person.model_validate(deltas[-1].parsed)
    keys = [list(event.parsed) for event in deltas if isinstance(event.parsed, dict)]
    assert keys[-1] == ["name", "age", "city"]
    assert keys == sorted(keys, key=len)


def test_parse_accepts_any_pydantic_type() -> None:
    with MLCEngine() as engine:
        completion = engine.chat.completions.parse(
            messages=QUESTION, response_format=tuple[Literal["a"], bool], max_tokens=50
        )

    parsed = completion.choices[0].message.parsed
    assert parsed in {("a", True), ("a", False)}


def test_incomplete_or_invalid_output_is_an_error_with_its_text() -> None:
    with MLCEngine() as engine:
        with pytest.raises(IncompleteAnswerError, match="cut off at max_tokens") as incomplete:
            engine.chat.completions.parse(messages=QUESTION, response_format=Person, max_tokens=4)
        with pytest.raises(IncompleteAnswerError, match="never") as invalid:
            engine.chat.completions.parse(messages=QUESTION, response_format=NeverValid)

    assert incomplete.value.text.startswith('{"name": "')
    assert json.loads(invalid.value.text)["name"] in {"a", "b"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parallel", [True, False])
async def test_required_tool_call_is_always_valid(seed: int, parallel: bool) -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "Tell me a story."}],
            tools=[WEATHER, CLOCK],
            tool_choice="required",
            parallel_tool_calls=parallel,
            temperature=1.5,
            seed=seed,
            max_tokens=300,
        )

    message = completion.choices[0].message
    assert completion.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert len(message.tool_calls or ()) == 1 or parallel
    for call in message.tool_calls or ():
        arguments = json.loads(call.function.arguments)
        if call.function.name == "get_time":
            assert arguments["zone"] in {"UTC", "CET"}
        else:
            assert set(arguments) == {"city", "unit"}


async def test_named_tool_is_called() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is the weather in Rome?"}],
            tools=[WEATHER, CLOCK],
            tool_choice={"type": "function", "function": {"name": "get_time"}},
        )

    calls = completion.choices[0].message.tool_calls or []
    assert {call.function.name for call in calls} == {"get_time"}


@pytest.mark.parametrize(
    ("syntax", "definition", "pattern"),
    [
        ("regex", r"(yes|no), [a-z]{3,10}\.", r"(yes|no), [a-z]{3,10}\."),
        ("lark", 'start: "<" /[0-9]{2}/ ">"', r"<[0-9]{2}>"),
    ],
)
async def test_text_matches_the_grammar(syntax: str, definition: str, pattern: str) -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            messages=QUESTION,
            response_format={"type": "grammar", "syntax": syntax, "definition": definition},
        )

    assert re.fullmatch(pattern, completion.choices[0].message.content or "")


async def test_structural_tag_is_enforced_after_its_trigger() -> None:
    structure = {"begin": "Hello<f=", "schema": {"enum": [7]}, "end": ">"}
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "Hello!"}],
            temperature=0,
            max_tokens=30,
            response_format={
                "type": "structural_tag",
                "structures": [structure],
                "triggers": ["Hello"],
            },
        )

    assert (completion.choices[0].message.content or "").startswith("Hello<f=7>")


async def test_every_constrained_token_has_logprobs() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            messages=QUESTION,
            logprobs=True,
            response_format={"type": "json_object", "schema": {"const": {"some": "text"}}},
        )

    choice = completion.choices[0]
    assert completion.usage is not None
    assert choice.logprobs is not None
    assert len(choice.logprobs.content) == completion.usage.completion_tokens
    assert "".join(item.token for item in choice.logprobs.content) == choice.message.content


@pytest.mark.parametrize(
    ("response_format", "message"),
    [
        ({"type": "json_object", "schema": {"not": {}}}, "not"),
        ({"type": "json_object", "schema": {"enum": []}}, "Unsatisfiable"),
        ({"type": "grammar", "syntax": "regex", "definition": "("}, "response_format"),
        ({"type": "grammar", "syntax": "lark", "definition": 'start: "a'}, "lexer error"),
        ({"type": "grammar", "syntax": "regex", "definition": "\0"}, "NUL"),
    ],
)
async def test_invalid_grammar_is_rejected_and_affects_no_other_request(
    response_format: dict[str, Any], message: str
) -> None:
    async with AsyncMLCEngine() as engine:
        with pytest.raises(GrammarError, match=message) as caught:
            await engine.chat.completions.create(messages=QUESTION, response_format=response_format)

        completion = await engine.chat.completions.create(messages=QUESTION, max_tokens=3)

    assert isinstance(caught.value, BadRequestError)
    assert caught.value.param == "response_format"
    assert caught.value.__cause__ is None
    assert completion.usage is not None


async def load_reasoning_model(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
    """Load the bundled model with prompts that start reasoning, which ends at the first "s"."""
    loaded = await open_model(model, **options)
    assert isinstance(loaded, LoadedModel)
    assert loaded.chat_template is not None
    suffix = "{% if add_generation_prompt %}<think>{% endif %}"
    return replace(
        loaded,
        chat_template=ChatTemplate(loaded.chat_template.source + suffix),
        reasoning_format=ReasoningFormat("<think>", "s"),
    )


@pytest.mark.parametrize("seed", range(3))
async def test_constraints_apply_after_the_reasoning(seed: int) -> None:
    options: dict[str, Any] = {"messages": QUESTION, "temperature": 1.0, "seed": seed}
    async with AsyncMLCEngine(loader=load_reasoning_model) as engine:
        person = await engine.chat.completions.parse(**options, response_format=Person)
        call = await engine.chat.completions.create(
            **options, tools=[CLOCK], tool_choice="required"
        )

    assert person.choices[0].message.reasoning_content
    assert isinstance(person.choices[0].message.parsed, Person)
    message = call.choices[0].message
    assert message.reasoning_content
    assert {item.function.name for item in message.tool_calls or ()} == {"get_time"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("question", ["What is the weather in Rome?", "Tell me a story."])
async def test_tools_with_a_response_format_give_a_call_or_a_parsed_value(
    seed: int, question: str
) -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.parse(
            messages=[{"role": "user", "content": question}],
            tools=[WEATHER],
            response_format=Person,
            temperature=1.0,
            seed=seed,
            max_tokens=300,
        )

    message = completion.choices[0].message
    assert (message.parsed is None) == (message.content is None) == bool(message.tool_calls)


async def test_text_completion_matches_the_response_format() -> None:
    schema = {**Person.model_json_schema(), "additionalProperties": False}
    options: dict[str, Any] = {"response_format": {"type": "json_object", "schema": schema}}
    async with AsyncMLCEngine() as engine:
        completion = await engine.completions.create(prompt="Mia is", n=2, **options)
        stream = await engine.generate("Mia is", **options)
        text = "".join([delta.text async for delta in stream])

    texts = [*(choice.text for choice in completion.choices), text]
    names = {Person.model_validate_json(text).name for text in texts}
    assert all(len(name) <= 20 for name in names)


async def test_forced_tokens_are_counted() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            messages=QUESTION,
            n=2,
            response_format={"type": "json_object", "schema": Person.model_json_schema()},
        )
        statistics, metrics = engine.statistics(), await engine.metrics()

    assert completion.usage is not None
    assert completion.usage.extra is not None
    forced = completion.usage.extra["jump_forward_tokens"]
    assert 0 < forced < completion.usage.completion_tokens
    assert forced == statistics.forced_tokens == metrics["jump_forward_tokens_sum"]
    assert metrics["engine_jump_forward_time_sum"] == statistics.forced_seconds > 0
