"""The output of Qwen 3 ASR is parsed as transformers does it, in whatever parts it arrives."""

from __future__ import annotations

import random

import numpy as np
import pytest

from aiomlc.errors import BadRequestError
from aiomlc.runtime.speech.asr_text import LANGUAGES, AsrText, find_language, prefill
from tests.model.make_asr_reference import PARSED, REFERENCE


def parsed(parts: list[str], language: str | None = None) -> AsrText:
    output = AsrText(language)
    for part in parts:
        output.put(part)
    output.finish()
    return output


@pytest.mark.parametrize("index", range(len(PARSED)))
def test_texts_and_languages_are_those_of_transformers(index: int) -> None:
    with np.load(REFERENCE) as file:
        language, text = str(file["languages"][index]), str(file["texts"][index])
    choice = random.Random(index)
    for _ in range(5):
        raw, parts = PARSED[index], list[str]()
        while raw:
            size = choice.randint(1, 9)
            parts.append(raw[:size])
            raw = raw[size:]
        output = parsed(parts)

        assert output.text == text
        expected = {name.lower(): code for code, name in LANGUAGES.items()}.get(language.lower())
        assert output.language == expected


def test_text_is_given_out_when_it_is_complete_and_never_changed() -> None:
    output = AsrText(None)

    assert [output.put(part) for part in ("lang", "uage Ger", "man<asr_")] == ["", "", ""]
    assert output.language is None
    assert output.put("text>") == ""
    assert output.language == "de"
    assert [output.put(part) for part in (" Guten", " ", "Tag", " \n")] == ["Guten", "", " Tag", ""]
    assert output.finish() == ""
    assert output.text == "Guten Tag"


def test_the_text_of_a_given_language_has_no_mark() -> None:
    output = AsrText("fr")

    assert output.put(" Bonjour") == "Bonjour"
    assert parsed(["a <asr_text> b"], "fr").text == "a <asr_text> b"
    assert prefill("fr") == "language French<asr_text>"
    assert prefill(None) == ""


@pytest.mark.parametrize("name", ["de", "German", "german"])
def test_a_language_is_a_code_or_a_name(name: str) -> None:
    assert find_language(name) == "de"


def test_an_unknown_language_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(BadRequestError, match=r"one of ar, cs, .*, zh, got 'Klingon'") as caught:
        find_language("Klingon")

    assert caught.value.param == "language"
