"""Text completions: wire format, prompts, options, failures and structured output."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import openai.types
import pytest
import tokenizers
import tokenizers.decoders
import tokenizers.models

from aiomlc import AsyncMLCEngine, Completion, MLCEngine
from aiomlc.api.completions.logprobs import CompletionLogprobsWriter
from aiomlc.api.session.loader import Loader
from aiomlc.errors import (
    BadRequestError,
    DuplicateRequestError,
    EngineDeadError,
    GrammarError,
    PromptTooLongError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.testing import FakeCore, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)


async def complete(core: FakeCore, prompt: Any, **options: Any) -> Completion:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        completion: Completion = await engine.completions.create(prompt=prompt, **options)
        return completion


async def stream(core: FakeCore, prompt: Any, **options: Any) -> list[Completion]:  # noqa: ANN401
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.completions.create(prompt=prompt, stream=True, **options)
        return [chunk async for chunk in chunks]


async def test_a_completion_has_openais_format() -> None:
    completion = await complete(FakeCore(["abc"]), "Once", model="mine", request_id="cmpl-1")

    assert completion.model_dump() == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": completion.created,
        "model": "mine",
        "choices": [{"index": 0, "text": "abc", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": 3,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "system_fingerprint": None,
    }


async def test_a_stream_has_openais_format() -> None:
    without_usage = await stream(FakeCore(["abc"]), "Once")
    with_usage = await stream(FakeCore(["abc"]), "Once", stream_options={"include_usage": True})

    choices = [choice for chunk in without_usage for choice in chunk.choices]
    assert "".join(choice.text for choice in choices) == "abc"
    assert [choice.finish_reason for choice in choices[-2:]] == [None, "stop"]
    assert all("usage" not in chunk.model_dump() for chunk in without_usage)
    assert all(chunk.model_dump()["usage"] is None for chunk in with_usage[:-1])
    assert (with_usage[-1].choices, with_usage[-1].usage is None) == ([], False)
    assert len({chunk.id for chunk in with_usage}) == 1


async def test_the_prompt_is_passed_to_the_core_unchanged() -> None:
    text, ids = FakeCore(), FakeCore()
    await complete(text, "Once")
    await complete(ids, [5, 6, 7])

    assert fake_model(text).tokenizer.decode(text.prompts[0]) == "Once"
    assert ids.prompts == [[5, 6, 7]]


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2, 3]], ["a", [2, 3]]])
async def test_each_of_several_prompts_has_one_choice(prompt: Any) -> None:  # noqa: ANN401
    completion = await complete(FakeCore(["one", "two"]), prompt)
    chunks = await stream(FakeCore(["one", "two"]), prompt)

    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert [(choice.index, choice.text) for choice in completion.choices] == [
        (0, "one"),
        (1, "two"),
    ]
    assert texts == ["one", "two"]
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 6


async def test_several_prompts_run_in_one_batch() -> None:
    core = FakeCore(["abc"])
    await complete(core, ["a", "b", "c", "d"])

    assert core.statistics().steps < 8


async def test_echo_prepends_the_prompt() -> None:
    hi = fake_model(FakeCore()).tokenizer.encode("Hi")

    text = await complete(FakeCore(["!"]), ["Hi", "Ho"], echo=True)
    ids = await complete(FakeCore(["!"]), hi, echo=True)
    chunks = await stream(FakeCore(["!"]), "Hi", echo=True)

    assert [choice.text for choice in text.choices] == ["Hi!", "Ho!"]
    assert ids.choices[0].text == "Hi!"
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hi!"


async def test_each_prompt_has_several_choices_in_order() -> None:
    core = FakeCore(["one", "two", "three", "four"])
    completion = await complete(core, ["a", "b"], n=2)
    chunks = await stream(FakeCore(["one", "two", "three", "four"]), ["a", "b"], n=2, echo=True)

    texts = [""] * 4
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert [choice.text for choice in completion.choices] == ["one", "two", "three", "four"]
    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
    assert texts == ["aone", "atwo", "bthree", "bfour"]
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (2, 15)


async def test_log_probabilities_are_parallel_lists() -> None:
    completion = await complete(FakeCore(["ab"]), "Once", logprobs=1)
    logprobs = completion.choices[0].logprobs

    assert logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset) == (["a", "b"], [0, 1])
    assert logprobs.token_logprobs == pytest.approx([math.log(0.5)] * 2)
    assert [set(top or ()) for top in logprobs.top_logprobs] == [{"a"}, {"b"}]


async def test_streamed_log_probabilities_add_up_to_those_of_the_completion() -> None:
    completion = await complete(FakeCore(["abc"]), "Once", logprobs=2)
    chunks = await stream(FakeCore(["abc"]), "Once", logprobs=2)

    deltas = [choice.logprobs for chunk in chunks for choice in chunk.choices if choice.logprobs]
    expected = completion.choices[0].logprobs
    assert expected is not None
    assert [offset for delta in deltas for offset in delta.text_offset] == expected.text_offset
    assert [token for delta in deltas for token in delta.tokens] == expected.tokens
    assert [top for delta in deltas for top in delta.top_logprobs] == expected.top_logprobs


def test_text_offsets_count_complete_characters() -> None:
    tokenizer = fake_model(FakeCore()).tokenizer
    ids = tokenizer.encode("aé€b")
    writer = CompletionLogprobsWriter(tokenizer)

    first = writer.write([TokenLogprob(token_id, -1.0, ()) for token_id in ids[:2]])
    later = writer.write([TokenLogprob(token_id, -1.0, ()) for token_id in ids[2:]])

    assert first["text_offset"] + later["text_offset"] == [0, 1, 1, 2, 2, 2, 3]


async def test_best_of_returns_n_choices_and_the_usage_counts_all() -> None:
    completion = await complete(FakeCore(["abc"]), ["x", "y"], best_of=3, n=2)

    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
    assert all(choice.logprobs is None for choice in completion.choices)
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 18


async def test_openais_types_accept_every_completion() -> None:
    for options in ({}, {"logprobs": 2}, {"n": 2}, {"best_of": 2, "logprobs": 0}):
        completion = await complete(FakeCore(["abc"]), ["x", "y"], **options)
        parsed = openai.types.Completion.model_validate_json(
            completion.model_dump_json(), strict=True
        )
        assert parsed.model_dump(mode="json", exclude_unset=True) == completion.model_dump()
        assert not parsed.model_extra


async def test_a_suffix_requires_fim_tokens() -> None:
    with pytest.raises(BadRequestError, match="no fill-in-the-middle tokens") as caught:
        await complete(FakeCore(), "a", suffix="b")

    assert caught.value.param == "suffix"


async def test_a_suffix_makes_a_fill_in_the_middle_prompt() -> None:
    core = FakeCore(["mid"])

    async def load(*_: object, **__: object) -> LoadedModel:
        return replace(fake_model(core), tokenizer=_fim_tokenizer())

    prompts: Any = ["ab", [3]]
    async with AsyncMLCEngine(loader=load) as engine:
        completion = await engine.completions.create(prompt=prompts, suffix="c", echo=True)

    assert core.prompts == [[4, 0, 1, 5, 2, 6], [4, 3, 5, 2, 6]]
    assert set(core.options[0].stop_token_ids) >= {4, 5, 6}
    assert completion.choices[0].text == "abmid"


def _fim_tokenizer() -> Tokenizer:
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE({letter: index for index, letter in enumerate("abcd")}, [])
    )
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["<fim_prefix>", "<fim_suffix>", "<fim_middle>"])
    return Tokenizer(backend)


async def test_the_options_reach_the_core() -> None:
    core = FakeCore(["abc"])
    completion = await complete(core, "Once", max_tokens=2, stop="x", temperature=0, seed=3)

    assert (completion.choices[0].text, completion.choices[0].finish_reason) == ("ab", "length")
    assert (core.options[0].stop, core.options[0].temperature) == (("x",), 0)
    assert core.options[0].seed == 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "", "echo": True}, "prompt"),
        ({"prompt": ["a", ""], "echo": True}, "prompt"),
        ({"prompt": [-1], "echo": True}, "prompt"),
        ({"prompt": [2**70], "echo": True}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2, "n": 3}, "best_of"),
        ({"prompt": "a", "best_of": 2, "stream": True}, "best_of"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "echo": "yes"}, "echo"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
async def test_an_invalid_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError, match=param) as caught:
        await complete(FakeCore(), **fields)

    assert caught.value.param == param


async def test_if_one_prompt_is_too_long_none_is_submitted() -> None:
    core = FakeCore()
    with pytest.raises(PromptTooLongError):
        await complete(core, ["a", "x" * 1024])

    assert core.prompts == []


async def test_a_failed_prompt_cancels_the_others() -> None:
    core = FakeCore(["abc"], failures={1: "impossible"}, hand_stepped=True)
    core.allow(1)
    with pytest.raises(RequestFailedError, match="impossible"):
        await complete(core, ["a", "b"])

    assert core.cancelled == [2]


async def test_leaving_a_stream_early_cancels_every_prompt() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.completions.create(prompt=["a", "b"], stream=True)
        core.allow(1)
        async with chunks:
            await chunks.__anext__()

        assert core.cancelled == [1, 2]
        with pytest.raises(StopAsyncIteration):
            await chunks.__anext__()


async def test_each_of_several_prompts_has_its_own_request_id() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.completions.create(prompt=["a", "b"], stream=True, request_id="r")
        with pytest.raises(DuplicateRequestError):
            await engine.completions.create(prompt=["c", "d"], request_id="r")

        await engine.abort("r-0")
        with pytest.raises(RequestAbortedError):
            await chunks.__anext__()

        assert repr(chunks) == "<CompletionStream 'r' of 2 prompts>"

    assert core.cancelled[-1] == 2


async def test_several_prompts_are_aborted_by_the_id_of_their_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        chunks = await engine.completions.create(prompt=["a", "b"], stream=True)
        await engine.abort(chunks.request_id)
        with pytest.raises(RequestAbortedError):
            await chunks.__anext__()

    assert core.cancelled == [1, 2]


async def test_a_dead_engine_raises_for_the_reader() -> None:
    with pytest.raises(EngineDeadError):
        await complete(FakeCore(["abc"], dies_at_step=2), "a")


@pytest.mark.parametrize("prompt", ["Once", ["Once", "Twice"]])
def test_the_blocking_engine_has_completions(prompt: Any) -> None:  # noqa: ANN401
    with MLCEngine(loader=fake_loader(replies=["abc"])) as engine:
        completion = engine.completions.create(prompt=prompt)
        streamed = engine.completions.create(prompt=prompt, stream=True)
        text = "".join(chunk.choices[0].text for chunk in streamed)

    assert {choice.text for choice in completion.choices} == {"abc"}
    assert text == "abc" * len(completion.choices)


INTEGER_LIST: dict[str, Any] = {
    "type": "json_object",
    "schema": {"type": "array", "items": {"type": "integer"}},
}


class AnyGrammar:
    """A grammar compiler that rejects only `(`; the fake core ignores the result."""

    def compile(self, grammar: Grammar) -> object:
        if grammar.source == "(":
            raise GrammarError("missing closing parenthesis")

        return grammar


def constrained(core: FakeCore) -> Loader:
    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(core), grammars=GrammarCache(AnyGrammar))

    return load


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_response_format_constrains_a_completion(*, is_streamed: bool) -> None:
    core = FakeCore(["[1]"])
    async with AsyncMLCEngine(loader=constrained(core)) as engine:
        options: dict[str, Any] = {"prompt": ["a", "b"], "response_format": INTEGER_LIST}
        if is_streamed:
            chunks = await engine.completions.create(**options, stream=True)
            text = "".join([choice.text async for chunk in chunks for choice in chunk.choices])
        else:
            completion = await engine.completions.create(**options)
            text = "".join(choice.text for choice in completion.choices)

        stream = await engine.generate("c", response_format=INTEGER_LIST)
        text += "".join([delta.text async for delta in stream])
        await engine.completions.create(prompt="d", response_format={"type": "text"})

    assert text == "[1][1][1]"
    grammar = json_grammar(INTEGER_LIST["schema"])
    assert [options.grammar for options in core.options] == [grammar, grammar, grammar, None]


@pytest.mark.parametrize("method", ["completions", "generate"])
async def test_a_response_format_that_cannot_be_compiled_is_rejected(method: str) -> None:
    core = FakeCore()
    broken: dict[str, Any] = {"type": "grammar", "syntax": "regex", "definition": "("}
    cases: tuple[tuple[Loader, dict[str, Any]], ...] = (
        (constrained(core), broken),
        (fake_loader(core), INTEGER_LIST),
    )
    for loader, response_format in cases:
        async with AsyncMLCEngine(loader=loader) as engine:
            create: Any = engine.generate if method == "generate" else engine.completions.create
            with pytest.raises(BadRequestError) as caught:
                await create(prompt="a", response_format=response_format)

        assert caught.value.param == "response_format"

    assert core.prompts == []


def test_the_blocking_engine_supports_response_formats() -> None:
    core = FakeCore(["[1]"])
    with MLCEngine(loader=constrained(core)) as engine:
        completion = engine.completions.create(prompt="a", response_format=INTEGER_LIST)

    assert completion.choices[0].text == "[1]"
    assert core.options[0].grammar == json_grammar(INTEGER_LIST["schema"])
