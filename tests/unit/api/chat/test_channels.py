"""Messages in channels: their parts, in output that is cut into pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from aiomlc import AsyncMLCEngine, BadRequestError
from aiomlc.api.chat.channel_parser import ChannelParser
from aiomlc.api.session.loader import Loader
from aiomlc.runtime.engine.stream import Delta
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.channel_grammar import channel_grammar
from aiomlc.runtime.output_formats.harmony import HARMONY, find_channel_format
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, fake_model
from tests.unit.grammar_oracle import allows
from tests.unit.runtime.output_formats.harmony_chats import (
    TEMPLATE,
    analysis,
    call,
    commentary,
    final,
)
from tests.unit.runtime.output_formats.parsed_output import ParsedOutput

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
NEXT = "<|end|><|start|>assistant"
CITY = '{"city": "Rome"}'

Parser = Callable[..., ChannelParser]


class Output(ParsedOutput):
    """The reasoning, the content and the calls of a completion."""

    def __init__(self, deltas: list[dict[str, Any]]) -> None:
        super().__init__(deltas)
        self.reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)


def make_parser(opening: str = "", **options: bool) -> ChannelParser:
    defaults = {"offers_tools": True, "separates_reasoning": True, "has_response_format": False}
    return ChannelParser(HARMONY, opening, **(defaults | options))


def parse(
    text: str, sizes: Sequence[int], parser: ChannelParser, finish_reason: str = "stop"
) -> Output:
    """Parse a completion whose tokens are its characters, in pieces of these sizes."""
    deltas: list[dict[str, Any]] = []
    position = 0
    for size in cycle(sizes):
        piece, is_last = text[position : position + size], position + size >= len(text)
        position += size
        reason = finish_reason if is_last else None
        deltas += parser.parse(Delta(piece, (0,) * len(piece), reason, 0, position, (), 0))
        if is_last:
            return Output(deltas)

    raise AssertionError("no sizes")


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4)
# Beginnings of markers, but no whole one.
_TEXTS = st.text(alphabet='ab <|>/endstarmgc\n"{}é', max_size=30).filter(
    lambda text: not any(marker in text for marker in HARMONY.markers)
)
_VALUES = st.dictionaries(st.text(max_size=4), st.text(max_size=8) | st.integers(), max_size=3)
_MESSAGES = st.one_of(
    _TEXTS.map(lambda text: ("analysis", text, "")),
    _TEXTS.map(lambda text: ("commentary", text, "")),
    _TEXTS.map(lambda text: ("final", text, "")),
    _VALUES.map(lambda value: ("call", json.dumps(value), "f")),
)
_HEADERS = {
    "analysis": ["<|channel|>analysis<|message|>"],
    "commentary": ["<|channel|>commentary<|message|>"],
    "final": ["<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"],
    "call": [
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.f code<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
        "<|channel|>analysis to=f<|message|>",
    ],
}


@st.composite
def completions(draw: st.DrawFn) -> tuple[str, list[tuple[str, str, str]], int]:
    """Return a completion, its messages, and the length of all that belongs to reasoning."""
    messages = draw(st.lists(_MESSAGES, min_size=1, max_size=5))
    text, reasoning = "", 0
    for index, (kind, body, _) in enumerate(messages):
        start = "<|start|>assistant" if index else ""
        end = draw(st.sampled_from(["<|end|>", "<|call|>"])) if index + 1 < len(messages) else ""
        message = f"{start}{draw(st.sampled_from(_HEADERS[kind]))}{body}{end}"
        reasoning += len(message) if kind == "analysis" else 0
        text += message
    return text, messages, reasoning


@given(completion=completions(), sizes=SIZES)
def test_the_parts_do_not_depend_on_how_a_stream_is_cut(
    completion: tuple[str, list[tuple[str, str, str]], int], sizes: list[int]
) -> None:
    text, messages, num_reasoning = completion
    parser = make_parser()

    output = parse(text, sizes, parser)

    def of(*kinds: str) -> str:
        return "\n".join(body for kind, body, _ in messages if kind in kinds and body)

    assert output.reasoning == of("analysis")
    assert output.content == of("commentary", "final")
    assert output.calls == [("f", body) for kind, body, _ in messages if kind == "call"]
    assert parser.has_calls == (output.calls != [])
    # The tokens of a piece with the end of reasoning are shared by their characters.
    assert abs((parser.reasoning_tokens or 0) - num_reasoning) <= 1


@given(completion=completions(), sizes=SIZES)
def test_reasoning_that_is_not_separated_has_its_markers(
    completion: tuple[str, list[tuple[str, str, str]], int], sizes: list[int]
) -> None:
    text, messages, _ = completion
    parser = make_parser(separates_reasoning=False, offers_tools=False)

    output = parse(text, sizes, parser)

    assert output.content == text
    assert (output.reasoning, output.calls, parser.reasoning_tokens) == ("", [], None)
    del messages


@given(text=_TEXTS, sizes=SIZES)
def test_text_that_does_not_begin_like_a_message_is_content(text: str, sizes: list[int]) -> None:
    text = f"Hi {text}"

    assert parse(text, sizes, make_parser()).content == text


@given(sizes=SIZES)
@pytest.mark.parametrize(
    ("text", "finish_reason", "has_calls", "arguments"),
    [
        (call("f", '{"a": 1}'), "stop", True, '{"a": 1}'),
        (call("f", '{"a": 1}'), "length", False, '{"a": 1}'),
        (call("f", '{"a": '), "stop", False, '{"a": '),
        (call("f", "no JSON") + NEXT + final("x"), "stop", False, "no JSON"),
        (call("f", ""), "stop", True, "{}"),
    ],
)
def test_a_call_is_complete_if_its_arguments_are(
    text: str, finish_reason: str, has_calls: bool, arguments: str, sizes: list[int]
) -> None:
    parser = make_parser()

    output = parse(text, sizes, parser, finish_reason)

    assert output.calls == [("f", arguments)]
    assert parser.has_calls is has_calls


@given(sizes=SIZES)
@pytest.mark.parametrize(
    ("text", "finish_reason", "content"),
    [
        ("<|channel|>final", "length", ""),
        ("<|channel|>final", "stop", ""),
        ("<", "stop", "<"),
        ("<", "length", ""),
        (final("a<|e"), "length", "a<|e"),
        (final("a") + "<|end|><|sta", "length", "a"),
        (final("a<|channel|>final<|message|>b"), "stop", "a\nb"),
        (final("a<|end|>b"), "stop", "ab"),
        (" \n", "stop", " \n"),
    ],
)
def test_output_may_end_anywhere(
    text: str, finish_reason: str, content: str, sizes: list[int]
) -> None:
    assert parse(text, sizes, make_parser(), finish_reason).content == content


@given(sizes=SIZES)
def test_markers_in_structured_output_are_content(sizes: list[int]) -> None:
    text = '"<|end|><|start|>assistant<|channel|>analysis<|message|>"'

    output = parse(
        analysis("Hm.") + NEXT + final(text), sizes, make_parser(has_response_format=True)
    )

    assert (output.reasoning, output.content) == ("Hm.", text)


def test_without_tools_a_message_to_a_function_is_text() -> None:
    output = parse(call("f", "{}"), [3], make_parser(offers_tools=False))

    assert (output.content, output.calls) == ("{}", [])


@pytest.mark.parametrize(
    ("prompt", "opening"),
    [
        ("Hello", ""),
        ("<|start|>user<|message|>a<|end|>", ""),
        ("<|start|>user<|message|>a<|end|><|start|>assistant", ""),
        ("<|start|>assistant<|channel|>analysis<|message|>", analysis("")),
        ("<|start|>assistant<|channel|>final<|message|>So", final("So")),
        ("<|start|>assistant to=f<|channel|>final", " to=f<|channel|>final"),
        ("<|start|>assistant<|channel|>final<|message|>So<|return|>", ""),
    ],
)
def test_the_prompt_may_have_the_beginning_of_the_message(prompt: str, opening: str) -> None:
    assert HARMONY.open_message(prompt) == opening


@pytest.mark.parametrize(
    ("opening", "text", "expected"),
    [
        (analysis(""), f"Hm.{NEXT}{final('Hi')}", ("Hm.", "Hi")),
        (analysis("H"), f"m.{NEXT}{final('Hi')}", ("m.", "Hi")),
        (final("H"), "i", ("", "i")),
        ("<|channel|>final", "<|message|>Hi", ("", "Hi")),
    ],
)
def test_a_completion_continues_the_message_of_the_prompt(
    opening: str, text: str, expected: tuple[str, str]
) -> None:
    output = parse(text, [4], make_parser(opening))

    assert (output.reasoning, output.content) == expected


# ---- The engine ----


class AnyGrammar:
    """A grammar compiler that accepts every grammar; the fake core ignores the result."""

    def compile(self, grammar: Grammar) -> object:
        return grammar


def loader_of(core: FakeCore) -> Loader:
    async def load(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        return replace(
            fake_model(core),
            chat_template=ChatTemplate(TEMPLATE),
            tool_format=None,
            channel_format=find_channel_format(TEMPLATE),
            grammars=GrammarCache(AnyGrammar),
        )

    return load


async def test_an_answer_has_reasoning_and_content_whole_and_streamed() -> None:
    reply = analysis("Hm.") + NEXT + final("Hi!")
    async with AsyncMLCEngine(loader=loader_of(FakeCore([reply]))) as engine:
        whole = await engine.chat.completions.create(messages=HELLO)
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = whole.choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm.", "Hi!")
    assert whole.choices[0].finish_reason == "stop"
    assert "".join(delta.reasoning_content or "" for delta in deltas) == "Hm."
    assert "".join(delta.content or "" for delta in deltas) == "Hi!"
    assert whole.usage is not None
    assert whole.usage.completion_tokens_details is not None
    expected = len(analysis("Hm.") + "<|end|>")
    assert whole.usage.completion_tokens_details.reasoning_tokens == expected


async def test_a_call_is_a_tool_call_whole_and_streamed() -> None:
    arguments = '{"city": "Rome"}'
    reply = f"{analysis('Hm.')}{NEXT}{commentary('Let me see.')}{NEXT}"
    reply += call("get_weather", arguments)
    async with AsyncMLCEngine(loader=loader_of(FakeCore([reply]))) as engine:
        whole = await engine.chat.completions.create(messages=HELLO, tools=TOOLS)
        stream = await engine.chat.completions.create(messages=HELLO, tools=TOOLS, stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]

    message = whole.choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm.", "Let me see.")
    assert [(c.function.name, c.function.arguments) for c in message.tool_calls or ()] == [
        ("get_weather", arguments)
    ]
    assert whole.choices[0].finish_reason == "tool_calls"
    streamed = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert [call.function.name for call in streamed if call.function.name] == ["get_weather"]
    assert "".join(call.function.arguments or "" for call in streamed) == arguments
    assert chunks[-1].finish_reason == "tool_calls"


async def test_reasoning_and_calls_of_earlier_messages_are_rendered() -> None:
    core = FakeCore([final("Sunny.")])
    function = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    messages: list[Any] = [
        *HELLO,
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "20 degrees"},
    ]
    async with AsyncMLCEngine(loader=loader_of(core)) as engine:
        answer = await engine.chat.completions.create(messages=messages, tools=TOOLS)

    prompt = bytes(core.prompts[0]).decode()
    assert prompt.endswith(
        "<|start|>user<|message|>Hello<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>"
        '{"city": "Rome"}<|call|>'
        "<|start|>functions to=assistant<|channel|>commentary<|message|>20 degrees<|end|>"
        "<|start|>assistant"
    )
    assert answer.choices[0].message.content == "Sunny."


async def test_a_call_with_content_and_reasoning_is_rendered() -> None:
    core = FakeCore([final("Sunny.")])
    function = {"name": "get_weather", "arguments": "{}"}
    messages: list[Any] = [
        *HELLO,
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "20 degrees"},
    ]
    async with AsyncMLCEngine(loader=loader_of(core)) as engine:
        await engine.chat.completions.create(messages=messages, tools=TOOLS)

    assert "Let me see." in bytes(core.prompts[0]).decode()


async def test_a_final_message_is_continued() -> None:
    messages: list[Any] = [*HELLO, {"role": "assistant", "content": "The capital"}]
    core = FakeCore([" is Rome."])
    async with AsyncMLCEngine(loader=loader_of(core)) as engine:
        answer = await engine.chat.completions.create(
            messages=messages, continue_final_message=True, add_generation_prompt=False
        )

    assert answer.choices[0].message.content == " is Rome."


async def test_separate_reasoning_false_leaves_the_text_as_it_is() -> None:
    reply = analysis("Hm.") + NEXT + final("Hi!")
    async with AsyncMLCEngine(loader=loader_of(FakeCore([reply]))) as engine:
        answer = await engine.chat.completions.create(messages=HELLO, separate_reasoning=False)

    assert answer.choices[0].message.content == reply
    assert answer.choices[0].message.reasoning_content is None


class City(BaseModel):
    """A structured answer."""

    name: str


async def test_a_typed_value_is_read_from_the_final_channel() -> None:
    reply = analysis("Hm.") + NEXT + final('{"name": "Rome"}')
    async with AsyncMLCEngine(loader=loader_of(FakeCore([reply]))) as engine:
        answer = await engine.chat.completions.parse(messages=HELLO, response_format=City)

    assert answer.choices[0].message.parsed == City(name="Rome")
    assert answer.choices[0].message.reasoning_content == "Hm."


@pytest.mark.parametrize(
    ("fields", "allowed", "refused"),
    [
        (
            {"response_format": {"type": "json_object"}},
            [final('{"a": 1}'), analysis("{") + NEXT + final("{}")],
            ["{}", final("x"), commentary("a") + NEXT + final("{}"), final("{}<|end|>")],
        ),
        (
            {"tools": TOOLS, "tool_choice": "required"},
            [
                call("get_weather", '{"city": "Rome"}'),
                f"{analysis('a')}{NEXT}{commentary('b')}{NEXT}{call('get_weather', CITY)}",
            ],
            [final("a"), call("get_weather", "{}"), call("other", CITY), analysis("a")],
        ),
        (
            {"tools": TOOLS, "parallel_tool_calls": False},
            [final("Hi"), call("get_weather", '{"x": 1}'), analysis("a") + NEXT + final("b")],
            ["Hi", call("other", CITY), call("get_weather", CITY) + NEXT + final("a")],
        ),
        (
            {"tools": TOOLS, "response_format": {"type": "json_object"}},
            [final("{}"), call("get_weather", "{}"), analysis("a") + NEXT + final("{}")],
            [final("Hi"), call("other", "{}"), "{}"],
        ),
    ],
)
async def test_output_is_constrained_in_its_channel(
    fields: dict[str, Any], allowed: list[str], refused: list[str]
) -> None:
    core = FakeCore([allowed[0]])
    async with AsyncMLCEngine(loader=loader_of(core)) as engine:
        await engine.chat.completions.create(messages=HELLO, **fields)

    grammar = core.options[0].grammar
    assert isinstance(grammar, Grammar)
    assert [text for text in allowed if not allows(grammar, text)] == []
    assert [text for text in refused if allows(grammar, text)] == []


async def test_the_answer_that_is_continued_has_the_grammar_of_the_answer() -> None:
    core = FakeCore(["1}"])
    messages: list[Any] = [*HELLO, {"role": "assistant", "content": '{"a": '}]
    async with AsyncMLCEngine(loader=loader_of(core)) as engine:
        await engine.chat.completions.create(
            messages=messages,
            continue_final_message=True,
            add_generation_prompt=False,
            response_format={"type": "grammar", "syntax": "regex", "definition": r"\d\}"},
        )

    assert core.options[0].grammar == Grammar("regex", r"\d\}")


def test_markers_that_are_special_tokens_are_matched_as_tokens() -> None:
    ids = dict(zip(HARMONY.markers, range(100, 200), strict=False))

    grammar = channel_grammar(
        HARMONY, ids.get, [ToolSchema("f", {"type": "object"})], must_call=False
    )

    assert not any(marker in grammar.source for marker in ids)


async def test_a_required_call_excludes_structured_output() -> None:
    async with AsyncMLCEngine(loader=loader_of(FakeCore(["x"]))) as engine:
        with pytest.raises(BadRequestError, match="together with a required tool call"):
            await engine.chat.completions.create(
                messages=HELLO,
                tools=TOOLS,
                tool_choice="required",
                response_format={"type": "json_object"},
            )
