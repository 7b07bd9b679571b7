"""The command `aiomlc serve`."""

from __future__ import annotations

__all__ = ("serve",)

from typing import Any

from aiomlc.cli.options.common import Debug, Model, NamedModel, one_model
from aiomlc.cli.options.records import takes_options
from aiomlc.cli.options.serve import AccessOptions, EngineOptions, LimitOptions, ListenOptions
from aiomlc.cli.terminal.failures import CommandError, report_failures

# The packages of the server, and the extras that have them.
_EXTRAS = {"starlette": "serve", "uvicorn": "serve", "hypercorn": "hypercorn", "trio": "trio"}


@takes_options
def serve(  # noqa: PLR0913 - the options are in records.
    model: Model = None,
    *,
    named_model: NamedModel = None,
    listen: ListenOptions,
    engines: EngineOptions,
    access: AccessOptions,
    limits: LimitOptions,
    debug: Debug = False,
) -> None:
    """Serve models over OpenAI's HTTP API, with a playground."""
    with report_failures(debug=debug):
        settings: dict[str, Any] = {
            "listen": listen,
            "engines": engines,
            "access": access,
            "limits": limits,
        }
        try:
            # Imported here because the import of the engine would slow down --help.
            from aiomlc.cli.jobs.serve import ServeSettings, run_server

            run_server(ServeSettings(model=one_model(model, named_model), **settings))
        except ModuleNotFoundError as error:
            if error.name not in _EXTRAS:
                raise

            extra = _EXTRAS[error.name]
            raise CommandError(
                f"the package {error.name} is missing: pip install 'aiomlc[{extra}]'"
            ) from error
