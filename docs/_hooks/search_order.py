"""Puts the pages that explain first among what the search finds.

Reference, design, decisions and files of the repository contain the same words more often, and so
do the pages for few readers and the long ones.
"""

from __future__ import annotations

__all__ = ("on_page_markdown",)

from mkdocs.structure.pages import Page

#: Weights of pages, or of each page of a folder; others have 1. A word in a heading counts a
#: thousand times as much as one in a text, and the reference has a heading for each name.
_BOOSTS = {
    **dict.fromkeys(("get_a_model.md", "serve.md", "coming_from.md", "tutorial.md"), 2.0),
    **dict.fromkeys(("embeddings.md", "structured_output.md"), 3.0),
    **dict.fromkeys(("reasoning.md", "long_contexts.md", "dashboards.md"), 1.5),
    "parameters.md": 3.0,
    **dict.fromkeys(("performance.md", "benchmarks.md", "reliability.md"), 0.2),
    **dict.fromkeys(("microserving.md", "glossary.md"), 0.2),
    "reference": 0.002,
    "design": 0.002,
    "design.md": 0.01,
    "adr": 0.001,
    "repository": 0.0005,
}


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Set the page's `search.boost`, which the theme's search reads."""
    if boost := _BOOSTS.get(page.file.src_uri.partition("/")[0]):
        page.meta["search"] = {"boost": boost}

    return markdown
