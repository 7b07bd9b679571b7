"""Thoughts are told apart from the answer, however the text comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc import AsyncMLCEngine
from aiomlc.api.chat.reasoning import ReasoningParser
from aiomlc.api.session.loader import Loader
from aiomlc.runtime.grammar.grammar import Grammar, GrammarCache, json_grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat, find_reasoning_format
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, fake_model
from tests.unit.grammar_oracle import allows

pytestmark = pytest.mark.timeout(20)
THINK = ReasoningFormat("<think>", "</think>")
HELLO = [{"role": "user", "content": "Hello"}]
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think> #}"
OPENED = PLAIN + "{% if add_generation_prompt %}<think>\n{% endif %}"
_WORDS = st.text(alphabet="ab <>/think\n", max_size=20).filter(lambda text: "think>" not in text)


def split(text: str, sizes: list[int], *, begins_inside: bool) -> tuple[str, str]:
    parser = ReasoningParser(THINK, begins_inside=begins_inside)
    parts = []
    for size in cycle(sizes):
        parts.append(parser.put(text[:size]))
        text = text[size:]
        if not text:
            break

    parts.append(parser.finish())
    return "".join(part[0] for part in parts), "".join(part[1] for part in parts)


_SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(thought=_WORDS, answer=_WORDS, sizes=_SIZES, begins_inside=st.booleans())
def test_any_cut_tells_the_same(
    thought: str, answer: str, sizes: list[int], begins_inside: bool
) -> None:
    text = f"{'' if begins_inside else ' <think>'}{thought}</think>{answer}"

    assert split(text, sizes, begins_inside=begins_inside) == (thought.strip(), answer.lstrip())


@given(answer=_WORDS, sizes=_SIZES)
def test_an_answer_without_thoughts_is_whole(answer: str, sizes: list[int]) -> None:
    assert split(answer, sizes, begins_inside=False) == ("", answer)


@given(thought=_WORDS, sizes=_SIZES)
def test_thoughts_that_are_cut_are_thoughts(thought: str, sizes: list[int]) -> None:
    assert split(f"<think>{thought}", sizes, begins_inside=False) == (thought.strip(), "")


@given(thought=_WORDS, answer=_WORDS, sizes=_SIZES)
def test_the_tokens_of_thoughts_are_counted(thought: str, answer: str, sizes: list[int]) -> None:
    thoughts = f"<think>{thought}</think>"
    text = thoughts + answer
    parser = ReasoningParser(THINK, begins_inside=False)
    for size in cycle(sizes):
        parser.put(text[:size], len(text[:size]))  # A token for each character.
        text = text[size:]
        if not text:
            break

    parser.finish()
    assert parser.num_tokens == len(thoughts)


@given(answer=_WORDS)
def test_an_answer_without_thoughts_has_no_tokens_of_thoughts(answer: str) -> None:
    parser = ReasoningParser(THINK, begins_inside=False)
    parser.put(answer, 5)
    parser.finish()

    assert parser.num_tokens == 0


def test_later_marks_are_text() -> None:
    assert split("Yes <think>no</think>", [3], begins_inside=False) == ("", "Yes <think>no</think>")
    assert split("<think>a</think>b</think>c", [3], begins_inside=False) == ("a", "b</think>c")


@pytest.mark.parametrize(
    ("source", "begin"),
    [(PLAIN, "<think>"), ("{{ '[/THINK]' }}", "[THINK]"), ("{{ messages }}", None)],
)
def test_the_template_tells_whether_a_model_thinks(source: str, begin: str | None) -> None:
    found = find_reasoning_format(source)

    assert (found.begin if found else None) == begin


def loader_of(change: Callable[[LoadedModel], LoadedModel], reply: str) -> Loader:
    async def load(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        return change(fake_model(FakeCore([reply])))

    return load


def thinking(template: str) -> Callable[[LoadedModel], LoadedModel]:
    hermes = next(item for item in TOOL_FORMATS if item.name == "hermes")
    return lambda model: replace(
        model,
        chat_template=ChatTemplate(template),
        reasoning_format=THINK,
        tool_format=hermes,
    )


@pytest.mark.parametrize(
    ("template", "reply"), [(PLAIN, "<think>Hm.</think>\n\nHi!"), (OPENED, "Hm.\n</think>\n\nHi!")]
)
async def test_thoughts_are_a_field_of_their_own_and_their_tokens_are_counted(
    template: str, reply: str
) -> None:
    async with AsyncMLCEngine(loader=loader_of(thinking(template), reply)) as engine:
        whole = await engine.chat.completions.create(messages=HELLO)
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = whole.choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm.", "Hi!")
    assert "".join(delta.reasoning_content or "" for delta in deltas) == "Hm."
    assert "".join(delta.content or "" for delta in deltas) == "Hi!"
    assert whole.usage is not None
    assert whole.usage.completion_tokens_details is not None
    end = reply.index("</think>") + len("</think>")
    assert whole.usage.completion_tokens_details.reasoning_tokens == end


async def test_thoughts_come_before_calls() -> None:
    reply = '<think>A tool.</think><tool_call>{"name": "f", "arguments": {}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with AsyncMLCEngine(loader=loader_of(thinking(PLAIN), reply)) as engine:
        answer = await engine.chat.completions.create(messages=HELLO, tools=tools)

    message = answer.choices[0].message
    assert (message.reasoning_content, message.content) == ("A tool.", None)
    assert [call.function.name for call in message.tool_calls or ()] == ["f"]


async def test_the_split_can_be_turned_off() -> None:
    async with AsyncMLCEngine(loader=loader_of(thinking(PLAIN), "<think>a</think>b")) as engine:
        answer = await engine.chat.completions.create(messages=HELLO, separate_reasoning=False)

    assert answer.choices[0].message.content == "<think>a</think>b"
    assert answer.choices[0].message.reasoning_content is None


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_past_thoughts_reach_the_template(field: str) -> None:
    source = "{% for m in messages %}{{ m.content }}|{{ m.reasoning_content }}{% endfor %}"
    core = FakeCore(["Hi"])

    async def load(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        return replace(fake_model(core), chat_template=ChatTemplate(source))

    async with AsyncMLCEngine(loader=load) as engine:
        await engine.chat.completions.create(
            messages=[{"role": "assistant", "content": "So.", field: "Hm."}, *HELLO]
        )

    assert bytes(core.prompts[0]).decode().startswith("So.|Hm.")


TURNS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{# <think> #}"
)
TRIMMED = TURNS.replace("{{ m.content }}", "{{ m.content | trim }}")
PREFIXED = TURNS.replace("{{ m.content }}", "{{ '<think>\n' if loop.last }}{{ m.content }}")
WORDED = TURNS.replace("[assistant]{%", "[assistant]<think>\nOkay, {%")
CLOSED = TURNS.replace("[assistant]{%", "[assistant]<think>\n\n</think>\n\n{%")
ASKED = [{"role": "user", "content": "What is <think>?"}]
INSIDE = ("see.", "Hi")
OUTSIDE = ("", "see.</think>Hi")


def prefilled(content: str) -> dict[str, Any]:
    messages = [*ASKED, {"role": "assistant", "content": content}]
    return {"messages": messages, "continue_final_message": True}


@pytest.mark.parametrize(
    ("template", "fields", "told"),
    [
        (TURNS, prefilled("<think>Let me"), INSIDE),
        (TRIMMED, prefilled("\n<think>Let me"), INSIDE),
        (TURNS, prefilled("<think>a</think>b<think>Let me"), INSIDE),
        (PREFIXED, prefilled("Let me"), INSIDE),
        (TURNS, prefilled("<think>Let me</think>No, "), OUTSIDE),
        (PREFIXED, prefilled("Let me</think>No, "), OUTSIDE),
        (TURNS, prefilled("Let me"), OUTSIDE),
        (TURNS, {"messages": ASKED}, OUTSIDE),
        (CLOSED, {"messages": ASKED}, OUTSIDE),
        (WORDED, {"messages": ASKED}, INSIDE),
        (WORDED, {"messages": ASKED, "add_generation_prompt": False}, OUTSIDE),
    ],
)
async def test_thoughts_go_on_where_the_last_turn_of_the_prompt_left_them_open(
    template: str, fields: dict[str, Any], told: tuple[str, str]
) -> None:
    loader = loader_of(thinking(template), "see.</think>Hi")
    async with AsyncMLCEngine(loader=loader) as engine:
        whole = await engine.chat.completions.create(**fields)
        stream = await engine.chat.completions.create(**fields, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = whole.choices[0].message
    assert (message.reasoning_content or "", message.content) == told
    assert "".join(delta.reasoning_content or "" for delta in deltas) == told[0]
    assert "".join(delta.content or "" for delta in deltas) == told[1]


class AnyGrammar:
    """A compiler of grammars that the fake core does not look at."""

    def compile(self, grammar: Grammar) -> object:
        return grammar


def constrained(template: str, reply: str, cores: list[FakeCore]) -> Loader:
    cores.append(FakeCore([reply]))

    async def load(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        thoughtful = thinking(template)(fake_model(cores[-1]))
        return replace(thoughtful, grammars=GrammarCache(AnyGrammar))

    return load


CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "f"}}]
GRAMMAR = {"type": "grammar", "definition": "a+"}
TAG = {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}
FORMS: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "json_object"}}, '{"a": 1}'),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, '{"a": 1}'),
    ({"response_format": {**GRAMMAR, "syntax": "regex"}}, "aa"),
    ({"response_format": {**GRAMMAR, "syntax": "lark", "definition": 'start: "a"+'}}, "aa"),
    (
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [TAG],
                "triggers": ["<f"],
            }
        },
        "So <f>1</f>",
    ),
    ({"tools": TOOLS, "tool_choice": "required"}, CALL),
    ({"tools": TOOLS, "parallel_tool_calls": False}, f"So\n{CALL}"),
]


@pytest.mark.parametrize(("fields", "answer"), FORMS)
async def test_where_the_prompt_opens_thoughts_the_form_of_an_answer_begins_behind_them(
    fields: dict[str, Any], answer: str
) -> None:
    cores: list[FakeCore] = []
    reply = f"Hm.\n</think>{answer}"
    async with AsyncMLCEngine(loader=constrained(OPENED, reply, cores)) as engine:
        whole = await engine.chat.completions.create(messages=HELLO, **fields)
        stream = await engine.chat.completions.create(messages=HELLO, **fields, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = whole.choices[0].message
    assert message.reasoning_content == "Hm."
    assert "".join(delta.reasoning_content or "" for delta in deltas) == "Hm."
    assert "".join(delta.content or "" for delta in deltas) == (message.content or "")
    assert bool(message.tool_calls) == ("tools" in fields)
    for options in cores[0].options:
        assert isinstance(options.grammar, Grammar)
        assert allows(options.grammar, reply)
        assert not allows(options.grammar, reply + "</f>Hm.<f>b")


@pytest.mark.parametrize(
    ("template", "fields"),
    [(PLAIN, {}), (CLOSED, {}), (OPENED, {"separate_reasoning": False})],
)
async def test_where_no_thoughts_are_told_apart_the_form_begins_with_the_answer(
    template: str, fields: dict[str, Any]
) -> None:
    cores: list[FakeCore] = []
    async with AsyncMLCEngine(loader=constrained(template, '{"a": 1}', cores)) as engine:
        answer = await engine.chat.completions.create(
            messages=HELLO, response_format={"type": "json_object"}, **fields
        )

    assert answer.choices[0].message.content == '{"a": 1}'
    assert cores[0].options[0].grammar == json_grammar({"type": "object"})


async def test_a_type_is_read_from_what_follows_the_thoughts() -> None:
    cores: list[FakeCore] = []
    loader = constrained(OPENED, "Hm.</think>[1, 2]", cores)
    async with AsyncMLCEngine(loader=loader) as engine:
        answer = await engine.chat.completions.parse(messages=HELLO, response_format=list[int])

    assert answer.choices[0].message.parsed == [1, 2]
