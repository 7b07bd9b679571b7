"""The bytes of a single token, by the decoder of a `tokenizer.json`."""

from __future__ import annotations

__all__ = (
    "TokenBytes",
    "byte_level",
    "decoded_tokens",
    "section_config",
    "strips_leading_space",
    "token_decoder",
)

import json
import re
from collections.abc import Callable
from typing import Any

from aiomlc.errors import ModelLoadError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# These decoders act on the decoded text, not on single tokens, so `token_bytes` ignores them.
_TEXT_DECODERS = ("Fuse", "Strip")

TokenBytes = Callable[[str], bytes]


def section_config(section: Any) -> Any:  # noqa: ANN401 - of the extension, and JSON.
    """Return the JSON value of a tokenizer's section, such as its decoder; None if it has none."""
    return None if section is None else json.loads(section.__getstate__())


def decoded_tokens(backend: Any) -> dict[int, str]:  # noqa: ANN401 - a class of the extension.
    """Return the string that the decoder receives for each token id.

    For an added token, that is the normalized content: "▁foo" where the vocabulary has "foo".
    """
    vocabulary = backend.get_vocab(with_added_tokens=True)
    tokens = {token_id: token for token, token_id in vocabulary.items()}
    return tokens | {i: backend.id_to_token(i) for i in backend.get_added_tokens_decoder()}


def token_decoder(decoder: dict[str, Any] | None) -> TokenBytes:
    """Return the function that decodes a single token to bytes.

    Raises:
        ModelLoadError: If the decoder is neither byte-level nor that of SentencePiece.
    """
    steps = [] if decoder is None else decoder.get("decoders", [decoder])
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        return byte_level

    replacements = [step for step in steps if step["type"] in {"Metaspace", "Replace"}]
    supported = {"Metaspace", "Replace", "ByteFallback", *_TEXT_DECODERS}
    if not replacements or not supported.issuperset(kinds):
        raise ModelLoadError(
            f"the tokenizer's decoder {kinds} is not supported; supported: byte-level and "
            "SentencePiece decoders",
            field="decoder",
        )

    return _sentence_piece([_replacement(step) for step in replacements], "ByteFallback" in kinds)


def strips_leading_space(decoder: dict[str, Any] | None) -> bool:
    """Return whether decoding drops the space before the first token, as SentencePiece does."""
    steps = [] if decoder is None else decoder.get("decoders", [decoder])
    return any(_strips_leading_space(step) for step in steps)


def _strips_leading_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Strip":
        return bool(step["content"] == " " and step["start"] >= 1)

    # `add_prefix_space` is the name in older files.
    scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
    return bool(step["type"] == "Metaspace" and scheme != "never")


def _replacement(step: dict[str, Any]) -> tuple[str, str]:
    if step["type"] == "Metaspace":
        return step["replacement"], " "

    pattern = step["pattern"].get("String")
    if pattern is None:
        raise ModelLoadError(
            f"the tokenizer's decoder replaces the pattern {step['pattern']}, which is not "
            "supported; supported: plain strings",
            field="decoder",
        )

    return pattern, step["content"]


def _sentence_piece(replacements: list[tuple[str, str]], byte_fallback: bool) -> TokenBytes:
    def to_bytes(token: str) -> bytes:
        match = _BYTE_TOKEN.fullmatch(token) if byte_fallback else None
        if match is not None:
            return bytes([int(match[1], 16)])

        for old, new in replacements:
            token = token.replace(old, new)

        return token.encode()

    return to_bytes


def byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode()  # An added token, which is plain text.


def _byte_level_alphabet() -> dict[str, int]:
    """Return the bytes of GPT-2's byte-level characters, a printable one for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_level_alphabet()
