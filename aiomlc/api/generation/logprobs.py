"""Log-probabilities in OpenAI's format."""

from __future__ import annotations

__all__ = (
    "LONG_LOGPROBS",
    "FirstChoiceBuffer",
    "LogprobEntries",
    "LogprobsWriter",
    "PromptWriter",
    "join_entries",
    "prompt_writer",
)

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, final
from weakref import WeakKeyDictionary

import orjson

from aiomlc.api.protocol.base import construct_unchecked
from aiomlc.api.protocol.chat import ChoiceLogprobs, TopLogprob, unread_entries, unread_logprobs
from aiomlc.api.protocol.chat import TokenLogprob as TokenEntry
from aiomlc.api.protocol.request import GenerationRequest
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.packed_logprobs import join_logprobs
from aiomlc.runtime.engine.stream import Delta
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

_TOP_FIELDS = {"token", "logprob", "bytes"}
_TOKEN_FIELDS = {*_TOP_FIELDS, "top_logprobs"}
_MAX_TEXTS = 32_768  # Of a tokenizer, in 10 MB.
_texts: WeakKeyDictionary[Tokenizer, dict[int, _TokenText]] = WeakKeyDictionary()

#: With 20 alternatives each, so many tokens take about 5 milliseconds.
LONG_LOGPROBS = 128
#: Converts the log-probabilities of a prompt to the field `prompt_logprobs`.
PromptWriter = Callable[[Iterable[TokenLogprob]], list[Any]]


def prompt_writer(request: GenerationRequest, tokenizer: Tokenizer) -> PromptWriter | None:
    """Return the writer of `prompt_logprobs`; None if the request does not ask for them."""
    num_top = request.prompt_logprobs
    if num_top is None:
        return None

    return partial(LogprobsWriter(tokenizer).write_prompt, num_top=num_top)


@final
class LogprobsWriter:
    """A converter of log-probabilities to the entries of OpenAI's `logprobs`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts = _texts.setdefault(tokenizer, {})

    def write(self, tokens: Sequence[TokenLogprob]) -> ChoiceLogprobs:
        """Return the field `logprobs` of a choice, with one entry per token."""
        return unread_logprobs(LogprobEntries(self, tokens))

    def write_prompt(self, tokens: Iterable[TokenLogprob], num_top: int) -> list[Any]:
        """Return one entry per token of a prompt; None for the first, which follows no token."""
        return [None, *(self.entry(token._replace(top=token.top[:num_top])) for token in tokens)]

    def write_json(self, tokens: Iterable[TokenLogprob]) -> list[str]:
        """Return one entry per token as JSON, as MLC LLM's `SyncMLCEngine` returns them."""
        return [json.dumps(self.entry(token).model_dump()) for token in tokens]

    def entry(self, token: TokenLogprob) -> TokenEntry:
        """Return the entry of a token."""
        top = [
            construct_unchecked(TopLogprob, self._describe(token_id, logprob), _TOP_FIELDS)
            for token_id, logprob in token.top
        ]
        fields = self._describe(token.token_id, token.logprob)
        fields["top_logprobs"] = top
        return construct_unchecked(TokenEntry, fields, _TOKEN_FIELDS)

    def json_entry(self, token: TokenLogprob) -> bytes:
        """Return the entry of a token as JSON, in a tenth of the time."""
        numbers = orjson.dumps([token.logprob, *(logprob for _, logprob in token.top)])
        own, *others = numbers[1:-1].split(b",")
        text = self._text(token.token_id)
        texts = [self._text(token_id) for token_id, _ in token.top]
        pairs = zip(texts, others, strict=True)
        top = [b"%b%b%b}" % (other.before, number, other.after) for other, number in pairs]
        return b'%b%b%b,"top_logprobs":[%b]}' % (text.before, own, text.after, b",".join(top))

    def _describe(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = self._text(token_id)
        return {
            "token": text.token,
            "logprob": logprob,
            "bytes": None if text.added is None else list(text.added),
        }

    def _text(self, token_id: int) -> _TokenText:
        text = self._texts.get(token_id)
        if text is None:
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()

            text = self._texts[token_id] = _token_text(*self._tokenizer.describe(token_id))

        return text


@final
class LogprobEntries:
    """The entries of a choice's tokens, which are made when they are needed."""

    def __init__(self, writer: LogprobsWriter, tokens: Sequence[TokenLogprob]) -> None:
        self._writer = writer
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def read(self) -> list[TokenEntry]:
        """Return the entries."""
        return [self._writer.entry(token) for token in self._tokens]

    def json(self) -> Iterator[bytes]:
        """Return each entry as JSON."""
        return map(self._writer.json_entry, self._tokens)

    @classmethod
    def join(cls, parts: Sequence[LogprobEntries]) -> LogprobEntries:
        """Return the entries of a choice one after the other."""
        return cls(parts[0]._writer, join_logprobs([part._tokens for part in parts]))


class _TokenText(NamedTuple):
    token: str
    added: bytes | None
    before: bytes  #: The JSON of an entry before its log-probability.
    after: bytes  #: The rest, without the end of the object.


def _token_text(token: str, added: bytes | None) -> _TokenText:
    before = b'{"token":%b,"logprob":' % orjson.dumps(token)
    values = orjson.dumps(None if added is None else list(added))
    return _TokenText(token, added, before, b',"bytes":%b' % values)


def join_entries(parts: Sequence[ChoiceLogprobs]) -> ChoiceLogprobs:
    """Return the entries of a choice's chunks, without making those that were not read."""
    entries = [unread_entries(part) for part in parts]
    unread = [each for each in entries if isinstance(each, LogprobEntries)]
    if not unread or len(unread) < len(entries):
        return ChoiceLogprobs(content=[entry for part in parts for entry in part.content])

    return unread_logprobs(LogprobEntries.join(unread))


@final
class FirstChoiceBuffer:
    """A buffer for other choices until choice 0 has delivered the prompt's log-probabilities.

    Only choice 0 has them. It must prefill the prompt to compute them, while the other choices may
    find the prompt in the prefix cache and so be faster.
    """

    def __init__(self) -> None:
        self.prompt: Sequence[TokenLogprob] | None = None  #: The first delta of choice 0 sets it.
        self._buffered: list[Delta] = []

    def put(self, delta: Delta) -> list[Delta]:
        """Add a delta, and return those that can be delivered, in order."""
        if self.prompt is not None:
            return [delta]

        if delta.choice != 0:
            self._buffered.append(delta)
            return []

        self.prompt = delta.prompt_logprobs
        buffered, self._buffered = self._buffered, []
        return [delta, *buffered]
