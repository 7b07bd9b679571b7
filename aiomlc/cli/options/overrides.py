"""The option `--overrides`: settings of the engine in one text."""

from __future__ import annotations

__all__ = ("parse_overrides",)

from aiomlc.cli.terminal.failures import CommandError


def parse_overrides(text: str) -> dict[str, int | str]:
    """Return the settings in `name=value;name=value`.

    Raises:
        CommandError: If a setting has no value.
    """
    values: dict[str, int | str] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = (part.strip() for part in item.partition("="))
        if not separator or not value:
            raise CommandError(f"--overrides must be 'name=value;name=value', got {item!r}")

        values[name] = int(value) if value.lstrip("-").isdecimal() else value
    return values
