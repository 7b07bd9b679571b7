"""Cases of errors that MLC LLM's users can meet, with the exceptions and messages raised here.

A case that MLC LLM's native code reports as a failed check raises a ValueError here if the caller
can fix it. There are no cases for features that are out of scope (REST server, router,
microserving, several GPUs, images, downloads, compiler policies, `StopStrHandler`), and none for
requests that are valid here, such as several tools with a `tool_choice`, `tool_calls` in the
history, text parts, late system messages that the template supports, or a second `unpack`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiomlc import MLCEngine
from aiomlc.errors import BadRequestError
from aiomlc.testing import fake_loader

USER = {"role": "user", "content": "Hello"}


@dataclass(frozen=True)
class Context:
    """The fixtures that a case may use."""

    directory: Path
    patch: pytest.MonkeyPatch


class ErrorCase(NamedTuple):
    """A way to provoke an error, and the expected exception."""

    name: str
    provoke: Callable[[Context], object]
    builtin: type[Exception]  #: The built-in class that MLC LLM's exception has.
    error: type[Exception]  #: The exact class raised here.
    field: str | None
    text: str  #: A part of the message.


def rejected(
    name: str, provoke: Callable[[Context], object], field: str | None, text: str
) -> ErrorCase:
    """Return a case of a BadRequestError, which is a ValueError."""
    return ErrorCase(name, provoke, ValueError, BadRequestError, field, text)


def check_error(case: ErrorCase, context: Context) -> None:
    """Provoke the error of a case and check its class, its field and its message."""
    with pytest.raises(case.builtin) as caught:
        case.provoke(context)

    error = caught.value
    assert type(error) is case.error
    assert (getattr(error, "param", None) or getattr(error, "field", None)) == case.field
    assert case.text in str(error)


def make_engine(**arguments: Any) -> MLCEngine:  # noqa: ANN401
    return MLCEngine(**{"loader": fake_loader(), **arguments})
