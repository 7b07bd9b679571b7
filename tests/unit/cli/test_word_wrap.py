"""Word wrap of text that arrives in pieces."""

from __future__ import annotations

import random
import textwrap

import pytest

from aiomlc.cli.terminal.word_wrap import WordWrapper


def wrap(text: str, width: int, size: int = 1) -> str:
    """Wrap a text that arrives in pieces of `size` characters."""
    wrapper = WordWrapper(lambda: width)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return "".join([*map(wrapper.feed, pieces), wrapper.flush()])


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("one two three", 7, "one two\nthree"),
        ("one two three", 8, "one two\nthree"),
        ("one two three", 0, "one two three"),
        ("one\n\n  two", 9, "one\n\n  two"),
        ("- one two three", 9, "- one two\nthree"),
        ("one\ttwo", 20, "one     two"),
        ("one  \ntwo", 20, "one\ntwo"),
        ("see abcdefghijkl now", 8, "see\nabcdefghijkl now"),
        ("日本語の文", 4, "日本\n語の\n文"),
        ("a 日本語", 5, "a 日\n本語"),
        ("e\u0301e\u0301 ab", 5, "e\u0301e\u0301 ab"),
        ("```\nlong line of code\n```\none two", 5, "```\nlong line of code\n```\none\ntwo"),
    ],
)
def test_lines_are_broken_between_words(text: str, width: int, expected: str) -> None:
    assert wrap(text, width) == expected


@pytest.mark.parametrize("character", ["\x1b", "\r", "\x07", "\x9b", "\x00"])
def test_control_characters_are_replaced(character: str) -> None:
    assert wrap(f"a{character}[31mb", 40) == "a\ufffd[31mb"


def test_wrapping_agrees_with_textwrap_and_does_not_depend_on_the_pieces() -> None:
    generator = random.Random(0)
    for _ in range(200):
        words = ["x" * generator.randint(1, 9) for _ in range(generator.randint(1, 30))]
        width = generator.randint(10, 40)

        assert wrap(" ".join(words), width, generator.randint(1, 12)) == textwrap.fill(
            " ".join(words), width
        )


def test_the_width_may_change() -> None:
    width = 20
    wrapper = WordWrapper(lambda: width)
    first = wrapper.feed("one two three ")
    width = 10

    assert first + wrapper.feed("four five ") == "one two three\nfour five"
