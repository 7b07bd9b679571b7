"""Tests of log-probabilities that are unpacked when they are read."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiomlc.api.chat.aggregate import ChatAccumulator
from aiomlc.api.generation.logprobs import LogprobEntries, LogprobsWriter, join_entries
from aiomlc.api.protocol.chat import ChatCompletionChunk, ChoiceLogprobs, unread_entries
from aiomlc.runtime.engine.core_protocol import Record, TokenLogprob
from aiomlc.runtime.engine.packed_logprobs import PackedLogprobs, join_logprobs
from aiomlc.runtime.engine.stream import Mailbox
from aiomlc.serve.http.json_text import to_json, to_json_in_turns
from aiomlc.testing import FakeCore, fake_model

pytestmark = pytest.mark.timeout(20)

VALUES = st.floats(-9999, 0, width=32)
TOKENS = st.builds(
    TokenLogprob,
    st.integers(0, 300),  # The vocabulary has 256.
    VALUES,
    st.lists(st.tuples(st.integers(0, 300), VALUES), max_size=20).map(tuple),
)


def pack(tokens: Sequence[TokenLogprob]) -> PackedLogprobs:
    """Pack as the native core does."""
    return PackedLogprobs(
        b"".join(
            struct.pack("<ifI", token.token_id, token.logprob, len(token.top))
            + b"".join(struct.pack("<if", *each) for each in token.top)
            for token in tokens
        )
    )


@cache
def writer() -> LogprobsWriter:
    return LogprobsWriter(fake_model(FakeCore()).tokenizer)


def chunk(logprobs: ChoiceLogprobs, finish_reason: str | None = None) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": {}, "logprobs": logprobs, "finish_reason": finish_reason}
    return ChatCompletionChunk.model_validate(
        {"id": "1", "created": 1, "model": "m", "choices": [choice]}
    )


@settings(max_examples=25)
@given(st.lists(TOKENS, max_size=5), st.lists(TOKENS, max_size=5))
def test_packed_values_read_as_the_tuples_that_they_were(
    tokens: list[TokenLogprob], others: list[TokenLogprob]
) -> None:
    packed = pack(tokens)

    assert (len(packed), bool(packed)) == (len(tokens), bool(tokens))
    assert packed == tuple(tokens)
    assert packed == pack(tokens)
    assert [packed[index] for index in range(len(tokens))] == tokens
    assert packed[1:] == tuple(tokens[1:])
    assert hash(packed) == hash(tuple(tokens))
    assert join_logprobs([packed, (), pack(others)]) == (*tokens, *others)


@settings(max_examples=25)
@given(st.lists(TOKENS, max_size=5))
def test_entries_are_the_same_whether_they_were_read_or_not(tokens: list[TokenLogprob]) -> None:
    def unread() -> ChoiceLogprobs:
        return writer().write(pack(tokens))

    read = unread()
    assert len(read.content) == len(tokens)
    assert isinstance(unread_entries(unread()), LogprobEntries)
    assert unread_entries(read) is read.content
    plain = ChoiceLogprobs.model_validate(read.model_dump())  # Checks each entry, too.
    for same in (unread(), read, unread().model_copy(), join_entries([unread()])):
        assert same == plain
        assert plain == same
        assert same.model_dump_json() == plain.model_dump_json()
        assert repr(same) == repr(plain)


@settings(max_examples=25)
@given(st.lists(TOKENS, max_size=5), st.lists(TOKENS, max_size=5))
def test_json_of_unread_entries_is_that_of_their_objects(
    tokens: list[TokenLogprob], others: list[TokenLogprob]
) -> None:
    first, last = writer().write(pack(tokens)), writer().write(pack(others))
    text = to_json(chunk(first))
    assert isinstance(unread_entries(first), LogprobEntries)
    assert orjson.loads(text) == chunk(first).model_dump()
    assert text == orjson.dumps(chunk(first).model_dump())
    assert len(join_entries([first, last]).content) == len(tokens) + len(others)


async def test_an_answer_has_the_entries_of_all_chunks_in_order() -> None:
    random = np.random.default_rng(1)
    tokens = [
        TokenLogprob(int(token_id), -0.5, ((int(token_id), -0.5), (7, -1.5)))
        for token_id in random.integers(0, 256, 200)
    ]
    total = ChatAccumulator()
    for start in range(0, 200, 40):
        total.add(chunk(writer().write(pack(tokens[start : start + 40]))))
    total.add(chunk(writer().write(()), "stop"))
    answer = total.completion()

    text = await to_json_in_turns(answer)
    assert isinstance(unread_entries(answer.choices[0].logprobs), LogprobEntries)
    assert orjson.loads(text) == answer.model_dump()
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content == [writer().entry(token) for token in tokens]


def test_a_delta_has_a_limited_number_of_log_probabilities() -> None:
    mailbox = Mailbox(2, max_unread=100)
    tokens = [TokenLogprob(token_id, -1.0, ()) for token_id in range(100)]
    paused = False
    for number, token in enumerate(tokens, start=1):
        for choice in range(2):
            ids = (token.token_id,)
            record = Record(1, "a", ids, None, None, 1, number, logprobs=pack([token]))
            paused |= mailbox.put(record, choice)

    assert paused
    read: list[list[TokenLogprob]] = [[], []]
    sizes, caught_up = [], []
    while (delta := mailbox.take_nowait()) is not None:
        read[delta.choice] += delta.logprobs
        sizes.append((delta.choice, len(delta.logprobs), len(delta.text)))
        caught_up.append(mailbox.catch_up(delta.choice))

    assert read == [tokens, tokens]
    assert sizes == [(c, n, n) for n in (32, 32, 32, 4) for c in (0, 1)]
    assert caught_up == [False] * 6 + [True] * 2
