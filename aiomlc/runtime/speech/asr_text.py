"""The output of Qwen 3 ASR: `language English<asr_text>`, and then what was said."""

from __future__ import annotations

__all__ = ("LANGUAGES", "AsrText", "collapse_repetitions", "find_language", "prefill")

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, final

from aiomlc.errors import BadRequestError

#: The names by which the model was trained, by code.
LANGUAGES: Mapping[str, str] = MappingProxyType(
    {
        "ar": "Arabic",
        "cs": "Czech",
        "da": "Danish",
        "de": "German",
        "el": "Greek",
        "en": "English",
        "es": "Spanish",
        "fa": "Persian",
        "fi": "Finnish",
        "fil": "Filipino",
        "fr": "French",
        "hi": "Hindi",
        "hu": "Hungarian",
        "id": "Indonesian",
        "it": "Italian",
        "ja": "Japanese",
        "ko": "Korean",
        "mk": "Macedonian",
        "ms": "Malay",
        "nl": "Dutch",
        "pl": "Polish",
        "pt": "Portuguese",
        "ro": "Romanian",
        "ru": "Russian",
        "sv": "Swedish",
        "th": "Thai",
        "tr": "Turkish",
        "vi": "Vietnamese",
        "yue": "Cantonese",
        "zh": "Chinese",
    }
)
_CODES: Final = {name.lower(): code for code, name in LANGUAGES.items()}
_MARK: Final = "<asr_text>"
_BEGIN: Final = "language "
_NO_LANGUAGE: Final = "none"
_MAX_REPEATS: Final = 20
_MAX_PATTERN: Final = 20  # Characters.
_CHARACTERS: Final = re.compile(rf"(.)\1{{{_MAX_REPEATS},}}", re.DOTALL)
# Their program looks for patterns up to 40 characters before the end.
_PATTERNS: Final = re.compile(
    rf"(?=.{{{2 * _MAX_REPEATS}}})(.{{1,{_MAX_PATTERN}}}?)\1{{{_MAX_REPEATS - 1},}}", re.DOTALL
)


def find_language(language: str) -> str:
    """Return the code of a language, which is a code or a name.

    Raises:
        BadRequestError: If the model does not know it.
    """
    code = language if language in LANGUAGES else _CODES.get(language.lower())
    if code is None:
        raise BadRequestError(
            f"language: must be one of {', '.join(LANGUAGES)}, got {language!r}", param="language"
        )

    return code


def prefill(language: str | None) -> str:
    """Return what the prompt ends with, so that the model writes only text in this language.

    Args:
        language: Its code; None lets the model write which language it hears.
    """
    return "" if language is None else f"{_BEGIN}{LANGUAGES[language]}{_MARK}"


def collapse_repetitions(text: str) -> str:
    """Return a text with one character in place of more than 20 equal ones in a row, and one
    pattern in place of at least 20, as the model's authors do: it may repeat itself without end."""
    return _PATTERNS.sub(r"\1", _CHARACTERS.sub(r"\1", text))


@final
class AsrText:
    """The parser of one output, which arrives in parts.

    Args:
        language: The code of the language that `prefill` named; the output is then text only.
    """

    def __init__(self, language: str | None) -> None:
        self.language: str | None = language  #: Its code; None until the model has written it.
        self._is_text = language is not None
        self._pending = ""  # What precedes the mark, then spaces at the end of the text so far.
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """The whole text so far, without spaces around it, and without what the model repeats
        without end. Takes milliseconds for a long text."""
        return collapse_repetitions(("".join(self._parts) + self._pending).strip()).strip()

    def put(self, output: str) -> str:
        """Add a part of the output, and return the text that it completes; may be empty.

        Without the mark, all of an output is text, so nothing is returned before the mark.
        """
        self._pending += output
        if not self._is_text:
            prefix, mark, text = self._pending.partition(_MARK)
            if not mark:
                return ""

            self._is_text = True
            self.language = _language_of(prefix)
            self._pending = text
        return self._complete()

    def finish(self) -> str:
        """Return the text that was held back: all of it if there is no mark."""
        self._is_text = True
        return self._complete()

    def _complete(self) -> str:
        text = self._pending if self._parts else self._pending.lstrip()
        complete = text.rstrip()
        self._pending = text[len(complete) :]
        if complete:
            self._parts.append(complete)
        return complete


def _language_of(prefix: str) -> str | None:
    """Return the code of the language that the first line names; None if it names none."""
    line = next(filter(None, map(str.strip, prefix.splitlines())), "")
    if line.lower().startswith(_BEGIN):
        line = line[len(_BEGIN) :].strip()
    if line.lower() == _NO_LANGUAGE:
        return None

    return _CODES.get(line.lower())
