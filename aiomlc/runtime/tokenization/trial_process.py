"""The process in which a new `tokenizer.json`, read from stdin, is tried out.

The first line on stdout is `ready`. The rest is the reason why the tokenizer is refused, or empty.
After a crash the exit status is not 0.
"""

from __future__ import annotations

__all__ = ("READY", "REFUSED", "VERSION")

import heapq
import resource
import sys
from collections.abc import Iterator
from typing import Any, Final

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.tokenization.token_decoder import decoded_tokens, section_config, token_decoder

READY: Final = "ready"
REFUSED: Final = "the tokenizer was refused after a trial in a process with limits"
VERSION: Final = 2  #: Part of the key of a passed trial; raised if the trial becomes stricter.
_MEMORY = 1 << 28  # Bytes of address space, in addition to a multiple of the file's size.
_MEMORY_PER_BYTE = 64
_CPU_SECONDS = 10
_CPU_SECONDS_PER_BYTE = 1e-6
_MAX_TOKEN_ID = 1 << 24
_MAX_GROWTH = 32  # Of a text by its normalizer. NFKC has 18.
_LENGTHS = (16, 256, 4096)
_SHORT_LENGTHS = (16, 512)
_TEXTS = ("a", "A", " ", "\n", "0", ".", "é", "中", "🙂", "\u0301", "It's 12:30, isn't it?  Yes!\n")
_MAX_DERIVED = 64
_MAX_TOKENS = 1000
_SECTIONS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def main() -> None:
    """Try out the tokenizer on stdin."""
    import tokenizers  # Before the limits, which are those of the tokenizer itself.

    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    content = sys.stdin.buffer.read()
    _limit(resource.RLIMIT_AS, _MEMORY + _MEMORY_PER_BYTE * len(content))
    _limit(resource.RLIMIT_CPU, _CPU_SECONDS + int(_CPU_SECONDS_PER_BYTE * len(content)))
    _limit(resource.RLIMIT_CORE, 0)
    try:
        backend = tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # noqa: BLE001 - the extension raises nothing narrower.
        sys.stdout.write(f"invalid tokenizer.json: {error}")
        return

    for problem in _problems(backend):
        sys.stdout.write(f"{REFUSED}: {problem}")
        return


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, limit))


def _problems(backend: Any) -> Iterator[str]:  # noqa: ANN401 - a class of the extension.
    vocabulary = backend.get_vocab(with_added_tokens=True)
    highest = max(vocabulary.values(), default=0)
    if highest >= _MAX_TOKEN_ID:
        yield f"token ids must be < {_MAX_TOKEN_ID}, got {highest}"

    backend.no_truncation()
    backend.no_padding()
    for text in _TEXTS:
        yield from _try_encode(backend, text, _LENGTHS)
    for text in _derived_texts(backend):
        yield from _try_encode(backend, text, _SHORT_LENGTHS)
    for count in _LENGTHS:
        backend.decode(list(range(min(count, highest + 1))))
    yield from _try_token_bytes(backend)


def _try_encode(backend: Any, text: str, lengths: tuple[int, ...]) -> Iterator[str]:  # noqa: ANN401
    for length in lengths:
        repeated = (text * length)[:length]
        for probe in (repeated, f"{repeated}!"):
            normalizer = backend.normalizer
            normalized = probe if normalizer is None else normalizer.normalize_str(probe)
            if len(normalized) > _MAX_GROWTH * len(probe):
                yield f"its normalizer makes {len(normalized)} characters of {len(probe)}"

            backend.encode(probe)


def _derived_texts(backend: Any) -> list[str]:  # noqa: ANN401
    """Return the strings of the sections that transform text, and their letters."""
    sections = (getattr(backend, name) for name in _SECTIONS)
    strings = [text for section in sections for text in _strings(section_config(section))]
    letters = sorted({letter for text in strings for letter in text})
    return [text[:_MAX_DERIVED] for text in (*strings, *letters) if text][:_MAX_DERIVED]


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name != "type":
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _try_token_bytes(backend: Any) -> Iterator[str]:  # noqa: ANN401 - a class of the extension.
    try:
        to_bytes = token_decoder(section_config(backend.decoder))
    except ModelLoadError:
        return  # An encoder needs none; a decoder's error is raised by the parent.

    tokens = decoded_tokens(backend).values()
    for token in heapq.nlargest(_MAX_TOKENS, tokens, key=len):
        nbytes = len(to_bytes(token))
        if nbytes > _MAX_GROWTH * len(token.encode()):
            yield f"its decoder makes {nbytes} bytes of the token {token[:40]!r}"


if __name__ == "__main__":
    main()
