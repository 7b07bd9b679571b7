"""Failures of a command, reported in one line and by the exit code of the process.

| exit code | meaning                                                    |
|-----------|------------------------------------------------------------|
| 0         | success                                                    |
| 1         | the model cannot be opened, the engine or an output failed |
| 2         | an option or a request is invalid                          |
| 130       | interrupted by Ctrl-C                                      |
| 141       | the reader of the output has gone (`aiomlc ... | head -1`) |
"""

from __future__ import annotations

__all__ = ("CommandError", "exit_code_of", "report_failures")

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from aiomlc.cli.terminal.standard_streams import discard_output, set_sigpipe_action, write_error
from aiomlc.errors import AiomlcError, BadRequestError, RequestError

_FAILED = 1
_INVALID = 2
_INTERRUPTED = 130  # What shells report for a process ended by SIGINT.
_BROKEN_PIPE = 141  # The same for SIGPIPE.
_ENGINE_FIELD = re.compile(
    r"engine_config\.(additional_models|kv_cache_dtype|mode|model_lib|prefill_mode"
    r"|prefix_cache_mode|quantization|speculative_mode)\b"
)


class CommandError(BadRequestError):
    """A command, or a line typed in a chat, cannot be carried out as it was given."""


@contextmanager
def report_failures(*, debug: bool) -> Iterator[None]:
    """Report an error in one line, and exit with its exit code; with `debug`, raise errors.

    Raises:
        typer.Exit: If a command failed or was interrupted.
    """
    set_sigpipe_action(signal.SIG_IGN)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except BrokenPipeError as error:
        discard_output()
        raise typer.Exit(exit_code_of(error)) from None
    except (AiomlcError, OSError) as error:
        if debug:
            raise

        if not isinstance(error, AiomlcError):
            discard_output()
        raise typer.Exit(exit_code_of(error)) from error


def exit_code_of(error: AiomlcError | OSError) -> int:
    """Write an error to standard error, in one line, and return its exit code."""
    if isinstance(error, BrokenPipeError):
        return _BROKEN_PIPE

    write_error(_in_options(error) if isinstance(error, AiomlcError) else _describe(error))
    return _INVALID if isinstance(error, RequestError) else _FAILED


def _in_options(error: AiomlcError) -> str:
    """Return the message of an error with the options that set the fields of the engine."""
    return _ENGINE_FIELD.sub(lambda match: f"--{match[1].replace('_', '-')}", str(error))


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {reason}" if error.filename else reason
