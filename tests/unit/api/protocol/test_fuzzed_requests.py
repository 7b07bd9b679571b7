"""Fuzzed requests are either served or rejected with an error of the library."""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiomlc import AiomlcError, BadRequestError, JSONFFIEngine, MLCEngine
from aiomlc.api.embeddings import EmbeddingOptions
from aiomlc.api.generation.options import ChatOptions, CompletionOptions
from aiomlc.testing import FakeEncoder, fake_loader
from tests.unit.api.protocol.wrong_values import has_pydantics_words

pytestmark = [pytest.mark.timeout(120)]

_Strategy = st.SearchStrategy[Any]
_Options = dict[str, Any]


class _Nested(dict[str, object]):
    """A deeply nested object with a short repr, so that Hypothesis' reports stay readable."""

    def __init__(self, depth: int, name: str) -> None:
        value: object = 1
        for _ in range(depth):
            value = {name: value} if depth % 2 else [value]
        super().__init__({name: value})

    def __repr__(self) -> str:
        return "_Nested(...)"


def _nested(*depths: int) -> _Strategy:
    return st.builds(_Nested, st.sampled_from(depths), st.sampled_from(["items", "a", "not"]))


_TEXT = st.text(max_size=8) | st.sampled_from(["\ud800", "a\udfff", "\ud83d\ude00", "é"])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 3)
    | st.floats()
    | _TEXT
)


class _Hostile(Mapping[str, object]):
    """A mapping whose methods raise, each sometimes."""

    def __init__(self, method: str) -> None:
        self._method = method

    def _check(self, method: str) -> None:
        if method == self._method:
            raise LookupError(method)

    def __getitem__(self, name: str) -> object:
        self._check("getitem")
        return "user"

    def __iter__(self) -> Iterator[str]:
        self._check("iter")
        return iter(("role", "content"))

    def __len__(self) -> int:
        self._check("len")
        return 2**40

    def __eq__(self, other: object) -> bool:
        self._check("eq")
        return self is other

    def __hash__(self) -> int:
        self._check("hash")
        return 1

    def __repr__(self) -> str:
        self._check("repr")
        return "_Hostile()"


_HOSTILE = st.builds(_Hostile, st.sampled_from(["", "getitem", "iter", "len", "eq", "hash"]))
# Values that are not JSON, and an integer too long to be converted to a string.
_NOT_JSON: _Strategy = (
    st.sampled_from(
        [{1, 2}, frozenset({"a"}), b"a", 1j, object(), Decimal(1), range(3), deque(["a"])]
    )
    | st.builds(pow, st.just(10), st.just(5000))
    | _HOSTILE
)
_WORDS = st.sampled_from(
    ["user", "assistant", "tool", "system", "function", "text", "auto", "required", "json_object"]
)
_JSON_TEXT = st.sampled_from(["{}", "[" * 100_000, '{"a": ' * 400, r'{"a": "\ud800"}', "1" * 5000])


def _tree(leaves: _Strategy) -> _Strategy:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
        max_leaves=6,
    )


def _calls(value: _Strategy) -> _Strategy:
    function = st.fixed_dictionaries({"name": st.just("f"), "arguments": _JSON_TEXT | value})
    call = st.fixed_dictionaries({"id": _TEXT, "type": st.just("function"), "function": function})
    return st.fixed_dictionaries({"role": st.just("assistant"), "tool_calls": st.tuples(call)})


def _messages(value: _Strategy) -> _Strategy:
    message = st.dictionaries(
        st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id", "x"]),
        _WORDS | value,
        max_size=4,
    )
    user_message = st.fixed_dictionaries({"role": st.just("user"), "content": _TEXT})
    return st.lists(message | user_message | _calls(value), max_size=3) | value


def _tools(value: _Strategy) -> _Strategy:
    function = st.fixed_dictionaries(
        {"name": _WORDS},
        optional={"parameters": value, "strict": _WORDS | value, "description": _TEXT},
    )
    tool = st.fixed_dictionaries({"type": st.just("function"), "function": function})
    return st.lists(tool, max_size=2)


def _response_formats(value: _Strategy) -> _Strategy:
    schema = _JSON_TEXT | value
    return st.fixed_dictionaries({"type": st.just("json_object"), "schema": schema})


def _values(value: _Strategy) -> _Strategy:
    return _WORDS | value | _messages(value) | _tools(value) | _response_formats(value)


_JSON = _tree(_SCALARS | _nested(90, 401))
_PYTHON = _tree(_SCALARS | _NOT_JSON | _nested(90, 401, 3000))
_VALUES = _values(_PYTHON)

_VALID_MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=8)}),
    min_size=1,
    max_size=3,
)
_VALID_PROMPTS = st.text(min_size=1, max_size=8) | st.lists(
    st.integers(0, 200), min_size=1, max_size=8
)
_VALID_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0, 1),
        "max_tokens": st.integers(1, 9),
        "seed": st.integers(-3, 3),
        "stop": st.text(min_size=1, max_size=3),
        "user": st.text(max_size=8),
    },
)


def _options(
    names: _Strategy, valid: _Strategy = _VALID_OPTIONS, *, max_size: int = 4
) -> _Strategy:
    """Generate arbitrary options, valid ones, and valid ones with arbitrary ones added."""
    arbitrary = st.dictionaries(names, _VALUES, max_size=max_size)
    return (
        arbitrary | valid | st.builds(lambda first, second: {**first, **second}, valid, arbitrary)
    )


def _names(*names: str) -> _Strategy:
    return st.sampled_from([*names, "stream", "functions", "audio", "é", "\ud800"])


_CHAT_FIELDS = _names(*ChatOptions.__annotations__)
_COMPLETION_FIELDS = _names(*CompletionOptions.__annotations__, "tools")
_EMBEDDING_FIELDS = _names(*EmbeddingOptions.__annotations__)
# Per test, of which there are seven.
_MAX_EXAMPLES = int(os.environ.get("AIOMLC_FUZZ_REQUESTS", "3500")) // 7
_many = settings(
    max_examples=_MAX_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader()) as engine:
        yield engine
        statistics = engine.statistics()
        assert (statistics.num_running, statistics.num_waiting) == (0, 0)


@pytest.fixture(scope="module")
def encoder() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        yield engine


@pytest.fixture(scope="module")
def json_engine() -> Iterator[JSONFFIEngine]:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        yield engine


class Outcomes(Counter[str]):
    """The numbers of served and rejected requests of one test."""

    def record(self, request: Callable[[], object]) -> None:
        """Send a request and count whether it is served or rejected; other errors propagate."""
        try:
            exhaust(request())
        except AiomlcError as error:
            self["rejected"] += 1
            self["in pydantic's words"] += has_pydantics_words(str(error))
        else:
            self["served"] += 1

    def check(self) -> None:
        """Require many requests of either kind; otherwise the test would prove little."""
        assert self.pop("in pydantic's words", 0) == 0, self
        assert self.total() >= _MAX_EXAMPLES, self
        assert self["served"] >= self.total() / 10, self
        assert self["rejected"] >= self.total() / 4, self


def exhaust(result: Any) -> None:  # noqa: ANN401
    if isinstance(result, Iterator):
        for _ in result:
            pass


def test_chat_requests_are_served_or_rejected(engine: MLCEngine) -> None:
    outcomes = Outcomes()

    @_many
    @given(messages=_VALID_MESSAGES | _messages(_PYTHON), options=_options(_CHAT_FIELDS))
    def send(messages: Any, options: _Options) -> None:  # noqa: ANN401
        options.pop("n", None)  # A hundred choices are valid but slow.
        outcomes.record(lambda: engine.chat.completions.create(messages=messages, **options))

    send()
    outcomes.check()


@pytest.mark.thorough
def test_completion_requests_are_served_or_rejected(engine: MLCEngine) -> None:
    outcomes = Outcomes()

    @_many
    @given(prompt=_VALID_PROMPTS | _VALUES, options=_options(_COMPLETION_FIELDS))
    def send(prompt: Any, options: _Options) -> None:  # noqa: ANN401
        for name in ("n", "best_of"):
            options.pop(name, None)
        outcomes.record(lambda: engine.completions.create(prompt=prompt, **options))

    send()
    outcomes.check()


@pytest.mark.thorough
def test_token_streams_are_served_or_rejected(engine: MLCEngine) -> None:
    outcomes = Outcomes()

    @_many
    @given(prompt=_VALID_PROMPTS | _VALUES, options=_options(_COMPLETION_FIELDS, max_size=3))
    def send(prompt: Any, options: _Options) -> None:  # noqa: ANN401
        options.pop("n", None)
        outcomes.record(lambda: engine.generate(prompt, **options))

    send()
    outcomes.check()


@pytest.mark.thorough
def test_response_requests_are_served_or_rejected(engine: MLCEngine) -> None:
    outcomes = Outcomes()
    valid = st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 2),
            "max_output_tokens": st.integers(1, 9),
            "instructions": st.text(max_size=8),
        },
    )

    @_many
    @given(
        input=st.text(min_size=1, max_size=8) | _VALID_MESSAGES | _VALUES,
        options=_options(st.text(max_size=12) | _CHAT_FIELDS, valid, max_size=3),
    )
    def send(input: Any, options: _Options) -> None:  # noqa: A002, ANN401
        options.pop("self", None)
        options.pop("input", None)
        outcomes.record(lambda: engine.responses.create(input=input, **options))

    send()
    outcomes.check()


def test_embedding_requests_are_served_or_rejected(encoder: MLCEngine) -> None:
    outcomes = Outcomes()
    letters = st.text("abcdefgh", min_size=1, max_size=8)
    valid = st.fixed_dictionaries(
        {},
        optional={
            "dimensions": st.integers(1, 3),
            "encoding_format": st.sampled_from(["float", "base64"]),
            "pooling": st.sampled_from(["mean", "cls", "last"]),
        },
    )

    @_many
    @given(
        input=letters
        | st.lists(letters, min_size=1, max_size=3)
        | st.lists(_TEXT | st.lists(st.integers(-2, 30), max_size=3), max_size=3)
        | _VALUES,
        options=_options(_EMBEDDING_FIELDS, valid, max_size=2),
    )
    def send(input: Any, options: _Options) -> None:  # noqa: A002, ANN401
        outcomes.record(lambda: encoder.embeddings.create(input=input, **options))

    send()
    outcomes.check()


def test_json_requests_are_answered_with_chunks(json_engine: JSONFFIEngine) -> None:
    outcomes = Outcomes()
    valid = st.builds(
        lambda messages, options: {"messages": messages, **options}, _VALID_MESSAGES, _VALID_OPTIONS
    )

    @_many
    @given(
        request=valid
        | st.dictionaries(_CHAT_FIELDS | st.just("messages"), _values(_JSON), max_size=5)
        | _JSON
    )
    def send(request: Any) -> None:  # noqa: ANN401
        if isinstance(request, dict):
            request = {**request, "n": 1}

        texts = list(json_engine.chat_completion(json.dumps(request)))

        chunks = [chunk for text in texts for chunk in json.loads(text)]
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        assert [chunk["usage"] is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
        assert chunks[-1]["choices"] == []
        is_error = chunks[-2]["choices"][0]["finish_reason"] == "error"
        outcomes["rejected" if is_error else "served"] += 1

    send()
    outcomes.check()


@pytest.mark.thorough
def test_requests_of_the_json_engine_are_answered_with_chunks(json_engine: JSONFFIEngine) -> None:
    outcomes = Outcomes()
    create = json_engine.chat.completions.create

    @_many
    @given(
        messages=_VALID_MESSAGES | _messages(_PYTHON), options=_options(_CHAT_FIELDS, max_size=3)
    )
    def send(messages: Any, options: _Options) -> None:  # noqa: ANN401
        options = {**options, "n": 1, "stream_options": {"include_usage": True}, "extra_body": None}
        if options.get("stream") is False:
            with pytest.raises(BadRequestError):
                create(messages=messages, **options)
            outcomes["rejected"] += 1
            return

        chunks = list(create(messages=messages, **options))

        assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
        assert all(chunk.model_dump_json() for chunk in chunks)
        is_error = chunks[-2].choices[0].finish_reason == "error"
        outcomes["rejected" if is_error else "served"] += 1

    send()
    outcomes.check()
