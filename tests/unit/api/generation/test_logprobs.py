"""Tests of log-probabilities in OpenAI's format."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError
from aiomlc.api.generation.logprobs import LogprobsWriter
from aiomlc.runtime.engine.core_protocol import Record, TokenLogprob
from aiomlc.runtime.engine.stream import Mailbox
from aiomlc.testing import FakeCore, fake_loader, fake_model

pytestmark = pytest.mark.timeout(20)
HALF = math.log(0.5)
LOGPROBS_REQUEST: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hello"}],
    "logprobs": True,
}


def entry(text: str, **fields: object) -> dict[str, Any]:
    return {"token": text, "logprob": HALF, "bytes": list(text.encode()), **fields}


async def test_a_completion_has_an_entry_for_each_token() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi"]))) as engine:
        completion = await engine.chat.completions.create(**LOGPROBS_REQUEST, top_logprobs=2)

    other = {"token": "I", "logprob": 2 * HALF, "bytes": [ord("I")]}
    logprobs = completion.model_dump()["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    assert logprobs["content"][0] == entry("H", top_logprobs=[entry("H"), other])
    assert [token["token"] for token in logprobs["content"]] == ["H", "i"]


async def test_without_top_logprobs_there_are_no_alternatives() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi"]))) as engine:
        completion = await engine.chat.completions.create(**LOGPROBS_REQUEST)

    assert completion.choices[0].logprobs is not None
    assert [token.top_logprobs for token in completion.choices[0].logprobs.content] == [[], []]


async def test_an_empty_completion_has_an_empty_list() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore([""]))) as engine:
        completion = await engine.chat.completions.create(**LOGPROBS_REQUEST)

    assert completion.choices[0].logprobs is not None
    assert completion.choices[0].logprobs.content == []


async def test_a_stream_has_each_entry_once_and_none_in_the_last_chunk() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore(["Hello!"]))) as engine:
        stream = await engine.chat.completions.create(**LOGPROBS_REQUEST, stream=True)
        choices = [chunk.choices[0] async for chunk in stream]

    tokens = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    assert "".join(token.token for token in tokens) == "Hello!"
    assert choices[-1].finish_reason == "stop"
    assert choices[-1].logprobs is None


class _BufferingCore:
    """A core that delivers the text of the first token together with that of the second."""

    def __init__(self, core: FakeCore) -> None:
        self._core = core
        self._buffered = ""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._core, name)

    def drain(self) -> list[Record]:
        records = []
        for record in self._core.drain():
            text = self._buffered + record.text
            self._buffered = text if len(text) == 1 and record.finish_reason is None else ""
            records.append(record._replace(text="" if self._buffered else text))
        return records


async def test_entries_of_buffered_text_are_not_buffered() -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(_BufferingCore(core))) as engine:
        stream = await engine.chat.completions.create(**LOGPROBS_REQUEST, stream=True)
        chunks = []
        core.allow(1)
        async for chunk in stream:
            core.allow(1)
            if chunk.choices[0].logprobs is not None:
                content = chunk.choices[0].logprobs.content
                chunks.append((chunk.choices[0].delta.content, [t.token for t in content]))

    assert "".join(text or "" for text, _ in chunks) == "abc"
    assert ("", ["a"]) in chunks
    assert [token for _, tokens in chunks for token in tokens] == ["a", "b", "c"]


async def test_a_bias_outside_of_the_vocabulary_is_rejected() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        with pytest.raises(
            BadRequestError, match=r"logit_bias: must have token ids in \[0, 256\), got 256"
        ) as caught:
            await engine.chat.completions.create(**LOGPROBS_REQUEST, logit_bias={"256": 1})

    assert caught.value.param == "logit_bias"


def test_merged_records_keep_every_entry_in_order() -> None:
    mailbox = Mailbox()
    entries = [TokenLogprob(token_id, -1.0, ()) for token_id in range(4)]
    for token in entries:
        mailbox.put(Record(1, "", (token.token_id,), None, None, 1, 1, logprobs=(token,)))

    delta = mailbox.take_nowait()

    assert delta is not None
    assert delta.logprobs == tuple(entries)


def test_partial_characters_and_unknown_ids_have_entries() -> None:
    tokens = [TokenLogprob(0xC3, -1.0, ()), TokenLogprob(5000, -2.0, ())]

    content = LogprobsWriter(fake_model(FakeCore()).tokenizer).write(tokens).content

    assert [(token.token, token.bytes) for token in content] == [("�", [0xC3]), ("", None)]
