"""The documentation: its links, its paths into the source, and its lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiomlc.sampling_params import PARAMETERS

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("training/*.md")})
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE_PATH = re.compile(r"`((?:aiomlc|native|benchmarks|tests|examples|docs|training)/[\w./-]+)`")
MAXIMUM_COLUMNS = 120


def _without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _without_code(page.read_text(encoding="utf-8")), re.M)
    plain = (re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()) for heading in headings)
    return {text.replace(" ", "-") for text in plain}


def _broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(_without_code(page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pages
def test_links_lead_somewhere(page: Path) -> None:
    assert _broken_links(page) == []


@pages
def test_source_paths_exist(page: Path) -> None:
    paths = SOURCE_PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pages
def test_lines_fit(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > MAXIMUM_COLUMNS] == []


def test_every_sampling_parameter_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    assert [name for name in PARAMETERS if f"`{name}`" not in page] == []


def test_every_example_is_listed() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    files = [path.name for path in (ROOT / "examples").iterdir() if path.is_file()]
    assert [name for name in files if f"(../examples/{name})" not in page] == ["__init__.py"]


def test_the_readme_and_the_design_page_stay_short() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").split()
    assert len(readme) <= 150
    assert len(design) <= 2400


def test_pictures_are_small_and_used() -> None:
    pictures = list((ROOT / "docs" / "images").iterdir())
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert {path.name: size for path in pictures if (size := path.stat().st_size) > 150_000} == {}
    assert [path.name for path in pictures if f"images/{path.name}" not in text] == []
