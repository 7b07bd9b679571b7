"""A model's `tokenizer.json`: text to ids, and the bytes of every token for the native core."""

from __future__ import annotations

__all__ = ("Tokenizer",)

import functools
import json
import re
from collections.abc import Callable, Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self, final

import tokenizers

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.runtime.tokenization.byte_pairs import BytePairs, read_byte_pairs
from aiomlc.validation.arguments import check_str, check_token_ids

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# These act on a whole text, not on a token: joined bytes need none of them.
_WHOLE_TEXT_DECODERS = ("Fuse", "Strip")

_TokenBytes = Callable[[str], bytes]


@final
class Tokenizer:
    """Encode prompts and describe the vocabulary. Thread-safe."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._backend.no_truncation()
        self._backend.no_padding()
        self._to_bytes = _token_decoder(json.loads(backend.to_str())["decoder"])
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(number for number, token in added.items() if token.special)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read a `tokenizer.json`.

        Raises:
            ModelNotFoundError: there is no such file.
            ModelLoadError: the file is not a tokenizer that can be streamed.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"cannot find the tokenizer {path}", path=path) from error
        except (OSError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"the tokenizer cannot be read: {error}", path=path) from error

        try:
            return cls.from_json(text)
        except ModelLoadError as error:
            raise ModelLoadError(f"{path}: {error}", path=path) from error

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build from the text of a `tokenizer.json`.

        Raises:
            ModelLoadError: the text is not a tokenizer that can be streamed.
        """
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # The extension raises nothing narrower.
            raise ModelLoadError(f"not a tokenizer: {error}") from error

        return cls(backend)

    @property
    def vocab_size(self) -> int:
        """One more than the highest token id; a model may have more rows than that."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @functools.cached_property
    def pieces(self) -> list[bytes]:
        """`token_bytes()`, computed once."""
        return self.token_bytes()

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; special tokens are those it spells out, none are added.

        Raises:
            BadRequestError: it is no text, or has half of a surrogate pair.
        """
        try:
            return self._backend.encode(text, add_special_tokens=False).ids
        except TypeError:
            check_str("prompt", text)
            raise

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, without special tokens.

        Raises:
            BadRequestError: they are no token ids.
        """
        try:
            return self._backend.decode(list(token_ids), skip_special_tokens=True)
        except (TypeError, OverflowError):
            check_token_ids("token_ids", token_ids, self.vocab_size)
            raise

    def token_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it."""
        return self._backend.token_to_id(token)

    def token_bytes(
        self, vocab_size: int | None = None, *, visible: Collection[str] = ()
    ) -> list[bytes]:
        """What each id adds to a text, by id: empty for special tokens and for ids without one.

        Special tokens that stand in one of the texts `visible` are text all the same.

        The bytes of a completion's tokens, joined, are its UTF-8 text. A leading space stays,
        which `decode` of a SentencePiece model drops: here the text continues a prompt.

        Raises:
            ModelLoadError: `vocab_size` is below the highest token id.
        """
        size = self.vocab_size
        if vocab_size is not None and vocab_size < size:
            raise ModelLoadError(
                f"the tokenizer has {size} tokens, the model {vocab_size}", field="vocab_size"
            )

        added = self._backend.get_added_tokens_decoder()
        hidden = {
            token_id
            for token_id in self._special_ids
            if not any(added[token_id].content in text for text in visible)
        }
        table = [b""] * (vocab_size or size)
        for token, token_id in self._backend.get_vocab(with_added_tokens=True).items():
            if token_id not in hidden:
                table[token_id] = self._to_bytes(token)

        return table

    def special_id(self, text: str) -> int | None:
        """The id of a special token by its text; None if there is no such."""
        token_id = self.token_id(text)
        return token_id if token_id in self._special_ids else None

    def grammar_bytes(self, vocab_size: int) -> list[bytes]:
        """As `token_bytes`, but a special token is 0xFF, which no text has, and its name."""
        table = self.token_bytes(vocab_size)
        for token_id in self._special_ids:
            table[token_id] = b"\xff" + (self._backend.id_to_token(token_id) or "").encode()

        return table

    def byte_pairs(self) -> BytePairs | None:
        """How text is cut into tokens; None where it is not by merging bytes or characters."""
        description = json.loads(self._backend.to_str())
        return read_byte_pairs(
            description["model"], self._to_bytes, by_character=self._to_bytes is not _byte_level
        )

    def describe(self, token_id: int) -> tuple[str, bytes | None]:
        """One token for a reader, and the bytes it adds to a text.

        A special token adds none and is written as the vocabulary spells it; an id without a
        token is empty. Bytes that are no whole characters are written as U+FFFD.
        """
        token = self._backend.id_to_token(token_id)
        if token is None or token_id in self._special_ids:
            return token or "", None

        added = self._to_bytes(token)
        return added.decode(errors="replace"), added


def _token_decoder(decoder: dict[str, Any] | None) -> _TokenBytes:
    """The part of a tokenizer's decoder that acts on one token, as one function."""
    steps = [] if decoder is None else decoder.get("decoders", [decoder])
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        return _byte_level

    spaces = [step for step in steps if step["type"] in {"Metaspace", "Replace"}]
    known = {"Metaspace", "Replace", "ByteFallback", *_WHOLE_TEXT_DECODERS}
    if not spaces or not known.issuperset(kinds):
        raise ModelLoadError(
            f"the tokenizer's decoder {kinds} is not supported: only byte-level and "
            "SentencePiece vocabularies can be streamed",
            field="decoder",
        )

    return _sentence_piece([_replacement(step) for step in spaces], "ByteFallback" in kinds)


def _replacement(step: dict[str, Any]) -> tuple[str, str]:
    if step["type"] == "Metaspace":
        return step["replacement"], " "

    pattern = step["pattern"].get("String")
    if pattern is None:
        raise ModelLoadError(
            f"the tokenizer's decoder replaces the pattern {step['pattern']}: only plain strings "
            "are supported",
            field="decoder",
        )

    return pattern, step["content"]


def _sentence_piece(replacements: list[tuple[str, str]], byte_fallback: bool) -> _TokenBytes:
    def to_bytes(token: str) -> bytes:
        match = _BYTE_TOKEN.fullmatch(token) if byte_fallback else None
        if match is not None:
            return bytes([int(match[1], 16)])

        for old, new in replacements:
            token = token.replace(old, new)

        return token.encode()

    return to_bytes


def _byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()  # An added token: its text as it is.


def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: a printable character stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_of_character()
