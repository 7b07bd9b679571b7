"""The commands `aiomlc cache list`, `verify` and `clear`."""

from __future__ import annotations

__all__ = ("cache_app",)

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiomlc.cli.options.common import Debug
from aiomlc.cli.terminal.failures import CommandError, report_failures
from aiomlc.cli.terminal.tables import fit_table, format_bytes, format_time

if TYPE_CHECKING:
    from aiomlc.cache import ListedEntry, StoredEntry

cache_app: typer.Typer = typer.Typer()

_DAMAGED: Final = 1
_AGE = re.compile(r"(?P<number>\d{1,9})(?P<unit>[smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


@cache_app.callback(invoke_without_command=True)
def _show_help(context: typer.Context) -> None:
    """List, verify or remove compiled libraries and packed weights."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cache_app.command("list")
def list_(*, debug: Debug = False) -> None:
    """List the entries, the last used one first."""
    with report_failures(debug=debug):
        from aiomlc.cache import cache_home, cache_limit, list_entries

        limit = cache_limit()
        entries = list_entries()
        if entries:
            typer.echo(fit_table([_HEADER, *map(_row, entries)], column=1))
        size = format_bytes(sum(entry.stored.nbytes for entry in entries))
        bound = "" if limit is None else f" of {format_bytes(limit)}"
        typer.echo(f"{size}{bound} in {cache_home()}")


@cache_app.command()
def verify(*, debug: Debug = False) -> None:
    """Compare all files with their checksums.

    The exit code is 1 if an entry is damaged.
    """
    with report_failures(debug=debug):
        from aiomlc.cache import list_entries, verify_entry
        from aiomlc.runtime.native.library import load_native

        load_native()
        entries = list_entries()
        num_damaged = 0
        for entry in entries:
            if (damage := verify_entry(entry.stored)) is not None:
                typer.echo(f"damaged: {entry.stored.path}: {damage}")
                num_damaged += 1
        typer.echo(f"{_summary(entry.stored for entry in entries)}, {num_damaged} damaged")
        if num_damaged:
            typer.echo("A damaged entry is made again when its model is opened.")
            raise typer.Exit(_DAMAGED)


@cache_app.command()
def clear(
    *,
    older_than: Annotated[
        str | None,
        typer.Option(help="Only what was not used for this long: 12h, 30d, 8w."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Remove the entries that no process uses."""
    with report_failures(debug=debug):
        from aiomlc.cache import clear_cache

        removal = clear_cache(0 if older_than is None else _parse_age(older_than))
        typer.echo(f"removed {_summary(removal.removed)}")
        if removal.kept:
            typer.echo(f"kept {_summary(removal.kept)}, in use")


_HEADER = ("kind", "model", "quantization", "size", "last used")


def _row(entry: ListedEntry) -> tuple[str, ...]:
    stored = entry.stored
    return (
        stored.kind.directory,
        str(entry.info.get("model", "(damaged)")),
        str(entry.info.get("quantization", "")),
        format_bytes(stored.nbytes),
        format_time(stored.last_used),
    )


def _summary(entries: Iterable[StoredEntry]) -> str:
    sizes = [entry.nbytes for entry in entries]
    number = "1 entry" if len(sizes) == 1 else f"{len(sizes):,} entries"
    return f"{number}, {format_bytes(sum(sizes))}"


def _parse_age(text: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise CommandError(f"--older-than must be a time such as 12h, 30d or 8w, got {text!r}")

    return int(match["number"]) * _SECONDS[match["unit"]]
