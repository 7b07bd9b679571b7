"""The badges of the README say what pyproject.toml says; no server draws them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def badges() -> dict[str, str]:
    picture = ROOT / "docs" / "images" / "badges.svg"
    tree = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    texts = [text.text or "" for text in tree.iterfind(".//{http://www.w3.org/2000/svg}text")]
    label = ", ".join(
        f"{name} {value}" for name, value in zip(texts[::2], texts[1::2], strict=True)
    )
    assert tree.get("aria-label") == label
    return dict(zip(texts[::2], texts[1::2], strict=True))


def test_the_badges_are_true(badges: dict[str, str]) -> None:
    assert badges == {
        "Python": PROJECT["project"]["requires-python"].removeprefix(">=") + "+",
        "license": PROJECT["project"]["license"],
        "types": "strict",
    }
    assert PROJECT["tool"]["mypy"]["strict"]
    assert Path(ROOT, "aiomlc", "py.typed").is_file()
