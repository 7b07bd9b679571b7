"""Parses the user's name of a model: a local path, or a repository of the Hugging Face hub."""

from __future__ import annotations

__all__ = ("DEFAULT_REVISION", "HubReference", "ModelSource", "parse_source")

import os
import re
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

from aiomlc.config import BUNDLED_MODEL, BUNDLED_NAME
from aiomlc.errors import BadRequestError
from aiomlc.validation.arguments import required_path
from aiomlc.validation.json_values import safe_repr

DEFAULT_REVISION: Final = "main"

_SCHEME: Final = "hf://"
_MLC_CONFIG: Final = "mlc-chat-config.json"
_URLS: Final = ("http://", "https://")
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REFERENCE = re.compile(
    rf"(?P<repository>{_NAME}/{_NAME})(?:@(?P<revision>[^:]*))?(?::(?P<file>.*))?", re.DOTALL
)
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,254}")
_FILE = re.compile(r"[^/\\\0][^\\\0]*\.gguf", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FORM: Final = "HF://user/repository, HF://user/repository@revision or hf://user/repository:x.gguf"


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository of the hub, or one GGUF file of it; `str` gives the name that parses to it."""

    repository: str  #: `user/name`.
    revision: str | None = None  #: A branch, a tag or a commit; None is the default branch.
    file: str | None = None  #: The path of a GGUF file; of a split one, its first part.
    #: Whether the name began with `HF://`, so that no directory was looked for.
    is_explicit: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{self.repository}{revision}" + ("" if self.file is None else f":{self.file}")

    @property
    def commit(self) -> str | None:
        """The revision, if it is the full hash of a commit, which never changes."""
        revision = self.revision or ""
        return revision if _COMMIT.fullmatch(revision) else None


ModelSource: TypeAlias = Path | HubReference


def parse_source(model: str | PathLike[str]) -> ModelSource:
    """Return what a model's name refers to; the hub is not asked.

    Whatever exists locally is a path, unless the name begins with `HF://`, and so is the bundled
    model. The path of an `mlc-chat-config.json` stands for its directory.

    Raises:
        BadRequestError: If the name is no path or empty, a URL of a web page, or malformed after
            `HF://`.
    """
    name = required_path("model", model)
    if name.lower().startswith(_SCHEME):
        return _parse_reference(name)

    if name.lower().startswith(_URLS):
        raise BadRequestError(
            f"model {safe_repr(name)} is a URL: pass {_FORM}, or a directory", param="model"
        )

    if name == BUNDLED_NAME and not os.path.lexists(name):
        return BUNDLED_MODEL

    path = _expanded(name)
    if path.name == _MLC_CONFIG and path.is_file():  # MLC LLM's first form of a model's path.
        return path.parent

    if os.path.lexists(path) or (match := _REFERENCE.fullmatch(name)) is None:
        return path

    return _reference(name, match) if _is_repository(match["repository"]) else path


def _parse_reference(name: str) -> HubReference:
    match = _REFERENCE.fullmatch(name[len(_SCHEME) :].removesuffix("/"))
    if match is None or not _is_repository(match["repository"]):
        raise BadRequestError(f"model must be {_FORM}, got {safe_repr(name)}", param="model")

    return replace(_reference(name, match), is_explicit=True)


def _is_repository(repository: str) -> bool:
    return "--" not in repository and ".." not in repository and not repository.endswith(".git")


def _reference(name: str, match: re.Match[str]) -> HubReference:
    revision, file = match["revision"], match["file"]
    if revision is not None and (_REVISION.fullmatch(revision) is None or ".." in revision):
        raise BadRequestError(
            f"model {safe_repr(name)}: the revision after @ must be a branch, a tag or a commit",
            param="model",
        )

    if file is not None and (_FILE.fullmatch(file) is None or ".." in file.split("/")):
        raise BadRequestError(
            f"model {safe_repr(name)}: the file after : must be the path of a .gguf file in the "
            "repository",
            param="model",
        )

    return HubReference(match["repository"], revision, file)


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # The user is unknown.
        return Path(name)
