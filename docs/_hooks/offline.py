"""Warns of a page that makes a browser load something from another server."""

from __future__ import annotations

__all__ = ("on_post_page",)

import logging
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

_LOG = logging.getLogger(f"mkdocs.hooks.{__name__}")
#: Addresses that a page loads, and the theme's parts that load something: the facts about a
#: repository, and the program that draws diagrams.
_LOADED = re.compile(
    r'<(?:script|img|iframe|source|video)\b[^>]*\bsrc="((?:https?:)?//[^"]*)"'
    r'|<link\b(?=[^>]*\brel="(?:stylesheet|icon|preconnect|preload|modulepreload)")'
    r'[^>]*\bhref="((?:https?:)?//[^"]*)"'
    r'|(data-md-component="source"|class="mermaid")'
)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Search the HTML of a page; in strict mode a warning ends the build."""
    for found in _LOADED.finditer(output):
        _LOG.warning("%s loads %s", page.file.src_uri, next(filter(None, found.groups())))
