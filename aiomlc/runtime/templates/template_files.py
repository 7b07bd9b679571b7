"""Reads a model's Jinja templates, from files and from its tokenizer's configuration."""

from __future__ import annotations

__all__ = ("DEFAULT", "TOOL_USE", "TemplateFile", "read_template_files")

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.validation.model_files import load_errors, read_text

DEFAULT = "default"
TOOL_USE = "tool_use"  #: The name of the template of chats that offer tools.
_JINJA_FILES = {
    DEFAULT: "chat_template.jinja",
    TOOL_USE: "additional_chat_templates/tool_use.jinja",
}
_CONFIG = "tokenizer_config.json"
_PROCESSOR_CONFIG = "chat_template.json"


class TemplateFile(NamedTuple):
    """The text of a template, and the file that it is from."""

    source: str
    path: Path


def read_template_files(files: ConfigFiles) -> dict[str, TemplateFile]:
    """Return the templates of a model directory or a GGUF file by name.

    As in transformers, files of their own take precedence over `tokenizer_config.json`; the
    `chat_template.json` of older processors is read if there is no other.

    Raises:
        ModelLoadError: If a file cannot be read or is not of the right type.
    """
    found = {} if files.is_gguf else _read_jinja_files(files.model)
    if DEFAULT in found:
        return found

    for name in (_CONFIG, _PROCESSOR_CONFIG):
        path = files.path(name)
        with load_errors(path):
            field = (files.object(name) or {}).get("chat_template")
            templates = {key: TemplateFile(text, path) for key, text in _named(field).items()}

        if templates:
            return {**templates, **found}

    return found


def _read_jinja_files(directory: Path) -> dict[str, TemplateFile]:
    files = {}
    for name, file_name in _JINJA_FILES.items():
        path = directory / file_name
        try:
            files[name] = TemplateFile(read_text(path), path)
        except ModelNotFoundError:
            continue

    return files


def _named(field: object) -> dict[str, str]:
    """Return the templates in a field, which is a template or a list of named ones."""
    if field is None:
        return {}

    if isinstance(field, str):
        return {DEFAULT: field}

    if not isinstance(field, list):
        raise ModelLoadError(
            f"chat_template must be a string or a list, got {type(field).__name__}",
            field="chat_template",
        )

    return dict(map(_named_template, field))


def _named_template(entry: object) -> tuple[str, str]:
    if isinstance(entry, Mapping):
        name, template = entry.get("name"), entry.get("template")
        if isinstance(name, str) and isinstance(template, str):
            return name, template

    raise ModelLoadError(
        "the entries of chat_template must be objects with the strings 'name' and 'template'",
        field="chat_template",
    )
