"""The commands `aiomlc pull`, `list` and `rm`."""

from __future__ import annotations

__all__ = ("list_", "pull", "rm")

import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from aiomlc.cli.options.common import Debug
from aiomlc.cli.terminal.failures import CommandError, report_failures
from aiomlc.cli.terminal.tables import fit_table, format_bytes, format_table, format_time
from aiomlc.config import BUNDLED_NAME

if TYPE_CHECKING:
    from aiomlc.sources.cached_models import CachedModel

T = TypeVar("T")

_Name = Annotated[
    str,
    typer.Argument(
        help="user/name, user/name@revision or user/name:file.gguf.",
        metavar="NAME",
        show_default=False,
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
_HEADER = ("model", "kind", "quantization", "size", "last used")


def pull(name: _Name, *, debug: Debug = False) -> None:
    """Download a model, or what has changed of it since."""
    with report_failures(debug=debug):
        # Imported here because the imports would slow down --help.
        from aiomlc.cli.terminal.progress import run_with_progress
        from aiomlc.runtime.loading.pull import pull as download

        path = run_with_progress(partial(download, name))
        typer.echo(path)


def list_(*, as_json: _Json = False, debug: Debug = False) -> None:
    """List the models on this computer."""
    with report_failures(debug=debug):
        from aiomlc.sources.cached_models import list_models

        models = _run(list_models)
        if as_json:
            typer.echo(_to_json(models))
        else:
            if models:
                typer.echo(fit_table([_HEADER, *_rows(models)], column=0))
                typer.echo(f"{format_bytes(sum(model.nbytes for model in models))} in all")
            else:
                typer.echo(f"nothing yet: the bundled model, {BUNDLED_NAME}, needs no download")


def rm(
    name: _Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: _Json = False,
    debug: Debug = False,
) -> None:
    """Remove a downloaded model and its packed weights.

    Of a directory, only the packed weights are removed.
    """
    with report_failures(debug=debug):
        from aiomlc.sources.removal import models_named, remove_model

        if not yes:
            _confirm(models_named(name))
        removal = _run(remove_model, name)
        if as_json:
            typer.echo(_to_json(removal.removed))
        else:
            typer.echo(f"removed {_summary(removal.removed)}")
        if removal.kept:
            typer.echo(f"kept {_summary(removal.kept)}, in use", err=True)


def _run(function: Callable[..., Awaitable[T]], *arguments: object) -> T:
    import anyio

    return anyio.run(function, *arguments)


def _confirm(models: list[CachedModel]) -> None:
    if not _is_terminal():
        raise CommandError("standard input is not a terminal: pass --yes to remove the model")

    typer.echo(format_table([_HEADER, *_rows(models)]), err=True)
    typer.confirm(f"Remove {_summary(models)}?", abort=True, err=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _rows(models: Iterable[CachedModel]) -> list[tuple[str, ...]]:
    """Return one row for what has one name, as weights that several versions have packed."""
    alike: dict[tuple[str, str, str], list[CachedModel]] = {}
    for model in models:
        key = model.name, model.kind, model.quantization or ""
        alike.setdefault(key, []).append(model)
    return [
        (
            name,
            kind if len(group) == 1 else f"{kind}, {len(group)} copies",
            quantization,
            format_bytes(sum(model.nbytes for model in group)),
            format_time(group[0].last_used),  # The last used one is the first.
        )
        for (name, kind, quantization), group in alike.items()
    ]


def _to_json(models: Iterable[CachedModel]) -> str:
    rows: list[dict[str, Any]] = [
        {
            "name": model.name,
            "kind": model.kind,
            "quantization": model.quantization,
            "nbytes": model.nbytes,
            "last_used": model.last_used,
            "path": str(model.path),
        }
        for model in models
    ]
    return json.dumps(rows, indent=2)


def _summary(models: Iterable[CachedModel]) -> str:
    sizes = [model.nbytes for model in models]
    number = "1 item" if len(sizes) == 1 else f"{len(sizes):,} items"
    return f"{number}, {format_bytes(sum(sizes))}"
