"""Makes pages of the repository's files outside of `docs/` to which the documentation links.

So a link such as `../examples/stream.py` holds on the site, too. A Markdown file becomes a page as
it is, a directory shows its README or a list of its files, and any other file its text.
"""

from __future__ import annotations

__all__ = ("on_files", "on_page_markdown")

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: The folder of these pages on the site.
FOLDER = "repository"
LANGUAGES = {".py": "python", ".ipynb": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}

_FENCED = re.compile(r"^( *)(```+).*?^\1\2$", re.M | re.S)
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file or directory that is linked, also by those that are added."""
    waiting = [
        target
        for file in files.documentation_pages()
        for target in _outside_targets(file.content_string, (DOCS / file.src_uri).parent)
    ]
    done: set[Path] = set()
    while waiting:
        target = waiting.pop()
        if target in done:
            continue

        done.add(target)
        text, directory = _page_text(target)
        waiting += _outside_targets(text, directory)
        uri = _uri(target)
        files.append(File.generated(config, uri, content=_with_site_links(text, directory, uri)))

    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page of `docs/` lead to the added pages."""
    uri = page.file.src_uri
    if page.file.generated_by is not None:
        return markdown  # Its links are those of the site already.

    return _with_site_links(markdown, (DOCS / uri).parent, uri)


def _page_text(path: Path) -> tuple[str, Path]:
    """Return the Markdown that shows a file, and the directory to which its links relate."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        if (path / "README.md").is_file():
            return (path / "README.md").read_text(encoding="utf-8"), path

        names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("__"))
        return f"# `{name}/`\n\n" + "".join(f"- [{name}]({name})\n" for name in names), path

    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text, path.parent

    return f"# `{name}`\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n", path.parent


def _uri(path: Path) -> str:
    """Return where the page of a file of the repository has its source on the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()

    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"{FOLDER}/{name}/index.md"

    return f"{FOLDER}/{name}" if path.suffix == ".md" else f"{FOLDER}/{name}.md"


def _target(link: str, directory: Path) -> Path | None:
    """Return the file to which a link leads, unless it leads elsewhere or nowhere."""
    if "://" in link or link.startswith("mailto:"):
        return None

    path = Path(os.path.normpath(directory / link))
    return path if path.is_relative_to(ROOT) and path.exists() else None


def _outside_targets(text: str, directory: Path) -> Iterator[Path]:
    for link in _LINK.findall(_FENCED.sub("", text)):
        path = _target(link, directory)
        if path is not None and not path.is_relative_to(DOCS):
            yield path


def _with_site_links(text: str, directory: Path, uri: str) -> str:
    """Replace each link to a file of the repository by that to its page, relative to `uri`."""

    def replace(match: re.Match[str]) -> str:
        path = _target(match[1], directory)
        if path is None:
            return match[1]

        return os.path.relpath(_uri(path), os.path.dirname(uri))  # noqa: PTH120 - Not a path here.

    parts: list[str] = []
    end = 0
    for block in _FENCED.finditer(text):
        parts += [_LINK.sub(replace, text[end : block.start()]), block[0]]
        end = block.end()

    return "".join([*parts, _LINK.sub(replace, text[end:])])
