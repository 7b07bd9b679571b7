"""Puts the pages that explain first among what the search finds.

Reference, design, decisions and files of the repository contain the same words more often, and so
do the pages for few readers.
"""

from __future__ import annotations

__all__ = ("on_page_markdown",)

from mkdocs.structure.pages import Page

#: How much a page, or each page of a folder, counts; others count 1.
_BOOSTS = {
    "get_a_model.md": 2.0,
    "serve.md": 2.0,
    "microserving.md": 0.3,
    "performance.md": 0.5,
    "reference": 0.3,
    "design": 0.5,
    "adr": 0.2,
    "repository": 0.1,
}


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Set the page's `search.boost`, which the theme's search reads."""
    if boost := _BOOSTS.get(page.file.src_uri.partition("/")[0]):
        page.meta["search"] = {"boost": boost}

    return markdown
