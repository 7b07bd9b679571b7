"""Separation of reasoning from content, with output in chunks of any size."""

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
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat, find_reasoning_format
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.testing import FakeCore, fake_model
from tests.unit.grammar_oracle import allows

pytestmark = pytest.mark.timeout(20)
MARKERS = ReasoningFormat("<think>", "</think>")
HELLO = [{"role": "user", "content": "Hello"}]
NO_PREFILL = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think> #}"
OPEN_PREFILL = NO_PREFILL + "{% if add_generation_prompt %}<think>\n{% endif %}"
_WORDS = st.text(alphabet="ab <>/think\n", max_size=20).filter(lambda text: "think>" not in text)


def split(
    text: str, sizes: list[int], *, starts_in_reasoning: bool, markers: ReasoningFormat = MARKERS
) -> tuple[str, str]:
    """Return the reasoning and the content of a text that arrives in chunks."""
    parser = ReasoningParser(markers, starts_in_reasoning=starts_in_reasoning)
    deltas = []
    for size in cycle(sizes):
        deltas.append(parser.put(text[:size]))
        text = text[size:]
        if not text:
            break

    deltas.append(parser.finish())
    return "".join(delta[0] for delta in deltas), "".join(delta[1] for delta in deltas)


_CHUNK_SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(reasoning=_WORDS, content=_WORDS, sizes=_CHUNK_SIZES, starts_in_reasoning=st.booleans())
def test_the_result_does_not_depend_on_the_chunk_sizes(
    reasoning: str, content: str, sizes: list[int], starts_in_reasoning: bool
) -> None:
    text = f"{'' if starts_in_reasoning else ' <think>'}{reasoning}</think>{content}"

    result = split(text, sizes, starts_in_reasoning=starts_in_reasoning)
    assert result == (reasoning.strip(), content.lstrip())


@given(content=_WORDS, sizes=_CHUNK_SIZES)
def test_output_without_reasoning_is_content(content: str, sizes: list[int]) -> None:
    assert split(content, sizes, starts_in_reasoning=False) == ("", content)


@given(reasoning=_WORDS, sizes=_CHUNK_SIZES)
def test_reasoning_without_an_end_marker_is_reasoning(reasoning: str, sizes: list[int]) -> None:
    assert split(f"<think>{reasoning}", sizes, starts_in_reasoning=False) == (reasoning.strip(), "")


@given(reasoning=_WORDS, content=_WORDS, sizes=_CHUNK_SIZES)
def test_reasoning_tokens_are_counted(reasoning: str, content: str, sizes: list[int]) -> None:
    reasoning_text = f"<think>{reasoning}</think>"
    text = reasoning_text + content
    parser = ReasoningParser(MARKERS, starts_in_reasoning=False)
    for size in cycle(sizes):
        parser.put(text[:size], len(text[:size]))  # One token per character.
        text = text[size:]
        if not text:
            break

    parser.finish()
    assert parser.num_tokens == len(reasoning_text)


@given(content=_WORDS)
def test_output_without_reasoning_has_no_reasoning_tokens(content: str) -> None:
    parser = ReasoningParser(MARKERS, starts_in_reasoning=False)
    parser.put(content, 5)
    parser.finish()

    assert parser.num_tokens == 0


@given(reasoning=_WORDS, spaces=st.sampled_from(["", "\n", " "]), sizes=_CHUNK_SIZES)
@pytest.mark.parametrize("ends", [False, True])
def test_a_second_start_marker_before_any_reasoning_is_dropped(
    reasoning: str, spaces: str, sizes: list[int], ends: bool
) -> None:
    text = f"{spaces}<think>{spaces}{reasoning}{'</think>Yes' if ends else ''}"

    assert split(text, sizes, starts_in_reasoning=True) == (
        reasoning.strip(),
        "Yes" if ends else "",
    )


def test_later_markers_are_content() -> None:
    text = "Yes <think>no</think>"
    assert split(text, [3], starts_in_reasoning=False) == ("", text)
    text = "<think>a</think>b</think>c"
    assert split(text, [3], starts_in_reasoning=False) == ("a", "b</think>c")


@pytest.mark.parametrize(
    ("source", "start_marker"),
    [
        (NO_PREFILL, "<think>"),
        ("{{ '[/THINK]' }}", "[THINK]"),
        ("{{ '<|channel>thought\\n<channel|>' }}", "<|channel>thought"),
        ("{{ messages }}", None),
    ],
)
def test_the_reasoning_format_is_detected_from_the_chat_template(
    source: str, start_marker: str | None
) -> None:
    reasoning_format = find_reasoning_format(source)

    assert (reasoning_format.start_marker if reasoning_format else None) == start_marker


@given(sizes=_CHUNK_SIZES)
def test_the_thoughts_of_gemma_4_are_reasoning(sizes: list[int]) -> None:
    markers = find_reasoning_format("'<|channel>thought\\n<channel|>'")
    assert markers is not None

    def split_gemma(text: str) -> tuple[str, str]:
        return split(text, sizes, starts_in_reasoning=False, markers=markers)

    assert split_gemma("<|channel>thought\nHm.\n<channel|>Yes.") == ("Hm.", "Yes.")
    assert split_gemma("<|channel>thought\n<channel|>Yes.") == ("", "Yes.")
    assert split_gemma("Yes.") == ("", "Yes.")


def loader_of(change: Callable[[LoadedModel], LoadedModel], reply: str) -> Loader:
    async def load(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        return change(fake_model(FakeCore([reply])))

    return load


def reasoning_model(template: str) -> Callable[[LoadedModel], LoadedModel]:
    hermes = next(item for item in TOOL_FORMATS if item.name == "hermes")
    return lambda model: replace(
        model,
        chat_template=ChatTemplate(template),
        reasoning_format=MARKERS,
        tool_format=hermes,
    )


@pytest.mark.parametrize(
    ("template", "reply"),
    [(NO_PREFILL, "<think>Hm.</think>\n\nHi!"), (OPEN_PREFILL, "Hm.\n</think>\n\nHi!")],
)
async def test_reasoning_content_is_a_separate_field_and_its_tokens_are_counted(
    template: str, reply: str
) -> None:
    async with AsyncMLCEngine(loader=loader_of(reasoning_model(template), reply)) as engine:
        completion = await engine.chat.completions.create(messages=HELLO)
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = completion.choices[0].message
    assert (message.reasoning_content, message.content) == ("Hm.", "Hi!")
    assert "".join(delta.reasoning_content or "" for delta in deltas) == "Hm."
    assert "".join(delta.content or "" for delta in deltas) == "Hi!"
    assert completion.usage is not None
    assert completion.usage.completion_tokens_details is not None
    end = reply.index("</think>") + len("</think>")
    assert completion.usage.completion_tokens_details.reasoning_tokens == end


async def test_reasoning_may_precede_a_tool_call() -> None:
    reply = '<think>A tool.</think><tool_call>{"name": "f", "arguments": {}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with AsyncMLCEngine(loader=loader_of(reasoning_model(NO_PREFILL), reply)) as engine:
        completion = await engine.chat.completions.create(messages=HELLO, tools=tools)

    message = completion.choices[0].message
    assert (message.reasoning_content, message.content) == ("A tool.", None)
    assert [call.function.name for call in message.tool_calls or ()] == ["f"]


async def test_separate_reasoning_false_leaves_reasoning_in_the_content() -> None:
    async with AsyncMLCEngine(
        loader=loader_of(reasoning_model(NO_PREFILL), "<think>a</think>b")
    ) as engine:
        completion = await engine.chat.completions.create(messages=HELLO, separate_reasoning=False)

    assert completion.choices[0].message.content == "<think>a</think>b"
    assert completion.choices[0].message.reasoning_content is None


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_of_earlier_messages_is_passed_to_the_template(field: str) -> None:
    source = "{% for m in messages %}{{ m.content }}|{{ m.reasoning_content }}{% endfor %}"
    core = FakeCore(["Hi"])

    async def load(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        return replace(fake_model(core), chat_template=ChatTemplate(source))

    async with AsyncMLCEngine(loader=load) as engine:
        await engine.chat.completions.create(
            messages=[{"role": "assistant", "content": "So.", field: "Hm."}, *HELLO]
        )

    assert bytes(core.prompts[0]).decode().startswith("So.|Hm.")


TURNS_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{# <think> #}"
)
TRIMMED_TEMPLATE = TURNS_TEMPLATE.replace("{{ m.content }}", "{{ m.content | trim }}")
LAST_MESSAGE_PREFIX = TURNS_TEMPLATE.replace(
    "{{ m.content }}", "{{ '<think>\n' if loop.last }}{{ m.content }}"
)
TEXT_PREFILL = TURNS_TEMPLATE.replace("[assistant]{%", "[assistant]<think>\nOkay, {%")
CLOSED_PREFILL = TURNS_TEMPLATE.replace("[assistant]{%", "[assistant]<think>\n\n</think>\n\n{%")
QUESTION = [{"role": "user", "content": "What is <think>?"}]
IN_REASONING = ("see.", "Hi")
NOT_IN_REASONING = ("", "see.</think>Hi")


def continuing(content: str) -> dict[str, Any]:
    messages = [*QUESTION, {"role": "assistant", "content": content}]
    return {"messages": messages, "continue_final_message": True}


@pytest.mark.parametrize(
    ("template", "fields", "expected"),
    [
        (TURNS_TEMPLATE, continuing("<think>Let me"), IN_REASONING),
        (TRIMMED_TEMPLATE, continuing("\n<think>Let me"), IN_REASONING),
        (TURNS_TEMPLATE, continuing("<think>a</think>b<think>Let me"), IN_REASONING),
        (LAST_MESSAGE_PREFIX, continuing("Let me"), IN_REASONING),
        (TURNS_TEMPLATE, continuing("<think>Let me</think>No, "), NOT_IN_REASONING),
        (LAST_MESSAGE_PREFIX, continuing("Let me</think>No, "), NOT_IN_REASONING),
        (TURNS_TEMPLATE, continuing("Let me"), NOT_IN_REASONING),
        (TURNS_TEMPLATE, {"messages": QUESTION}, NOT_IN_REASONING),
        (CLOSED_PREFILL, {"messages": QUESTION}, NOT_IN_REASONING),
        (TEXT_PREFILL, {"messages": QUESTION}, IN_REASONING),
        (TEXT_PREFILL, {"messages": QUESTION, "add_generation_prompt": False}, NOT_IN_REASONING),
    ],
)
async def test_a_completion_starts_in_reasoning_if_the_last_turn_of_the_prompt_leaves_it_open(
    template: str, fields: dict[str, Any], expected: tuple[str, str]
) -> None:
    loader = loader_of(reasoning_model(template), "see.</think>Hi")
    async with AsyncMLCEngine(loader=loader) as engine:
        completion = await engine.chat.completions.create(**fields)
        stream = await engine.chat.completions.create(**fields, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = completion.choices[0].message
    assert (message.reasoning_content or "", message.content) == expected
    assert "".join(delta.reasoning_content or "" for delta in deltas) == expected[0]
    assert "".join(delta.content or "" for delta in deltas) == expected[1]


class AnyGrammar:
    """A grammar compiler that accepts every grammar; the fake core ignores the result."""

    def compile(self, grammar: Grammar) -> object:
        return grammar


def constrained(template: str, reply: str, cores: list[FakeCore]) -> Loader:
    cores.append(FakeCore([reply]))

    async def load(model: Any, **options: Any) -> LoadedModel:  # noqa: ANN401
        adapted = reasoning_model(template)(fake_model(cores[-1]))
        return replace(adapted, grammars=GrammarCache(AnyGrammar))

    return load


CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "f"}}]
GRAMMAR = {"type": "grammar", "definition": "a+"}
TAG = {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}
CONSTRAINTS: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(("fields", "output"), CONSTRAINTS)
async def test_output_is_constrained_after_the_reasoning_that_the_prompt_opens(
    fields: dict[str, Any], output: str
) -> None:
    cores: list[FakeCore] = []
    reply = f"Hm.\n</think>{output}"
    async with AsyncMLCEngine(loader=constrained(OPEN_PREFILL, reply, cores)) as engine:
        completion = await engine.chat.completions.create(messages=HELLO, **fields)
        stream = await engine.chat.completions.create(messages=HELLO, **fields, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = completion.choices[0].message
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
    [(NO_PREFILL, {}), (CLOSED_PREFILL, {}), (OPEN_PREFILL, {"separate_reasoning": False})],
)
async def test_output_is_constrained_from_its_start_if_the_prompt_does_not_end_in_reasoning(
    template: str, fields: dict[str, Any]
) -> None:
    cores: list[FakeCore] = []
    async with AsyncMLCEngine(loader=constrained(template, '{"a": 1}', cores)) as engine:
        completion = await engine.chat.completions.create(
            messages=HELLO, response_format={"type": "json_object"}, **fields
        )

    assert completion.choices[0].message.content == '{"a": 1}'
    assert cores[0].options[0].grammar == json_grammar({"type": "object"})


async def test_typed_output_is_parsed_from_the_content_after_the_reasoning() -> None:
    cores: list[FakeCore] = []
    loader = constrained(OPEN_PREFILL, "Hm.</think>[1, 2]", cores)
    async with AsyncMLCEngine(loader=loader) as engine:
        completion = await engine.chat.completions.parse(messages=HELLO, response_format=list[int])

    assert completion.choices[0].message.parsed == [1, 2]
