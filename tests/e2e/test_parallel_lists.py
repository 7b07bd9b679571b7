"""Lists that are parallel to tokens have an entry for each token that the usage counts."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, MLCEngine

QUESTION = "What is the capital of France?"
PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
END = "<|im_end|>"

#: How an answer ends.
ENDS: dict[str, dict[str, Any]] = {
    "end token": {},
    "end token at once": {"logit_bias": {"2": 100}},
    "stop string": {"stop": ["Paris"]},
    "stop string within a token": {"stop": ["ari"]},
    "stop token": {"stop_token_ids": [13]},
    "length": {"max_tokens": 3},
    "grammar": {"response_format": {"type": "grammar", "syntax": "regex", "definition": "a{3}"}},
}
_COMMON: dict[str, Any] = {"temperature": 0, "max_tokens": 60}


def _sampled(options: dict[str, Any]) -> dict[str, Any]:
    return {**_COMMON, "temperature": 1, "seed": 3, **options}


@pytest.fixture(scope="module")
def engine() -> Any:  # noqa: ANN401 - pytest reads no annotation of a generator.
    with MLCEngine() as engine:
        yield engine


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_completion_has_an_entry_for_each_token(engine: MLCEngine, end: str, echo: bool) -> None:
    choices: tuple[dict[str, Any], ...] = ({}, {"n": 3}, {"best_of": 3, "n": 2})
    for several in choices:
        options = _sampled(ENDS[end]) if several else {**_COMMON, **ENDS[end]}
        completion = engine.completions.create(
            prompt=PROMPT, echo=echo, logprobs=1, **several, **options
        )

        usage = completion.usage
        assert usage is not None
        echoed = usage.prompt_tokens if echo else 0
        lengths = []
        for choice in completion.choices:
            lists = choice.logprobs
            assert lists is not None
            sizes = {len(values) for values in lists.model_dump().values()}
            assert len(sizes) == 1, "the lists are parallel"
            lengths.append(sizes.pop() - echoed)
            assert all(value is not None for value in lists.token_logprobs[1:])
            if choice.finish_reason == "stop" and end.startswith("end token"):
                assert lists.tokens[-1] == END
                assert lists.text_offset[-1] == len(choice.text)
        if "best_of" not in several:
            assert sum(lengths) == usage.completion_tokens
        assert all(length >= 1 for length in lengths)


@pytest.mark.parametrize("end", ENDS)
async def test_streams_have_the_same_entries(end: str) -> None:
    options = {**_COMMON, **ENDS[end]}
    messages = [{"role": "user", "content": QUESTION}]
    stream_options = {"include_usage": True}
    async with AsyncMLCEngine() as engine:
        completion = await engine.completions.create(prompt=PROMPT, logprobs=0, **options)
        chat = await engine.chat.completions.create(messages=messages, logprobs=True, **options)
        deltas = [delta async for delta in engine.generate(PROMPT, logprobs=0, **options)]
        text_chunks = [
            chunk
            async for chunk in engine.completions.create(
                prompt=PROMPT, logprobs=0, stream=True, stream_options=stream_options, **options
            )
        ]
        chat_chunks = [
            chunk
            async for chunk in engine.chat.completions.create(
                messages=messages,
                logprobs=True,
                stream=True,
                stream_options=stream_options,
                **options,
            )
        ]

    assert completion.usage is not None
    assert completion.choices[0].logprobs is not None
    count, tokens = completion.usage.completion_tokens, completion.choices[0].logprobs.tokens
    assert len(tokens) == count
    entries = [entry for delta in deltas for entry in delta.logprobs]
    assert [entry.token_id for entry in entries] == [i for d in deltas for i in d.token_ids]
    assert len(entries) == deltas[-1].completion_tokens == count
    lists = [c.logprobs for chunk in text_chunks for c in chunk.choices if c.logprobs is not None]
    assert list(itertools.chain.from_iterable(part.tokens for part in lists)) == tokens
    assert text_chunks[-1].usage is not None
    assert text_chunks[-1].usage.completion_tokens == count

    assert chat.choices[0].logprobs is not None
    assert chat.usage is not None
    chat_tokens = [entry.token for entry in chat.choices[0].logprobs.content]
    assert len(chat_tokens) == chat.usage.completion_tokens == count
    assert chat_tokens == tokens
    streamed = [
        entry.token
        for chunk in chat_chunks
        for choice in chunk.choices
        if choice.logprobs is not None
        for entry in choice.logprobs.content
    ]
    assert streamed == chat_tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("options", [{}, {"n": 2}, {"best_of": 3, "n": 2}])
def test_max_tokens_0_scores_the_prompt(
    engine: MLCEngine, options: dict[str, Any], stream: bool
) -> None:
    if stream and "best_of" in options:
        return

    fields: dict[str, Any] = {"echo": True, "logprobs": 2, **options}
    one = engine.completions.create(prompt=[PROMPT, "Paris"], max_tokens=1, **fields)
    if stream:
        usage_asked: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(
            engine.completions.create(
                prompt=[PROMPT, "Paris"], max_tokens=0, **fields, **usage_asked
            )
        )
        usage = chunks[-1].usage
        reasons = Counter(c.finish_reason for chunk in chunks for c in chunk.choices)
        texts = [c.text for chunk in chunks for c in chunk.choices if c.text]
        scores = [c.logprobs for chunk in chunks for c in chunk.choices if c.logprobs is not None]
        assert reasons["length"] == len(one.choices)
    else:
        zero = engine.completions.create(prompt=[PROMPT, "Paris"], max_tokens=0, **fields)
        usage = zero.usage
        assert {choice.finish_reason for choice in zero.choices} == {"length"}
        texts = [choice.text for choice in zero.choices]
        scores = [choice.logprobs for choice in zero.choices if choice.logprobs is not None]

    assert usage is not None
    assert one.usage is not None
    assert (usage.completion_tokens, usage.prompt_tokens) == (0, one.usage.prompt_tokens)
    number = options.get("n", 1)
    assert texts == [PROMPT] * number + ["Paris"] * number
    for score, choice in zip(scores, one.choices, strict=True):
        assert choice.logprobs is not None
        assert score.token_logprobs == choice.logprobs.token_logprobs[:-1]
        assert score.tokens == choice.logprobs.tokens[:-1]
        assert score.top_logprobs == choice.logprobs.top_logprobs[:-1]


def test_max_tokens_0_without_echo_is_empty(engine: MLCEngine) -> None:
    completion = engine.completions.create(prompt=PROMPT, max_tokens=0, prompt_logprobs=0)

    assert completion.usage is not None
    assert (completion.choices[0].text, completion.usage.completion_tokens) == ("", 0)
    assert completion.choices[0].prompt_logprobs is not None
    assert len(completion.choices[0].prompt_logprobs) == completion.usage.prompt_tokens
