"""The error of a framework that is not installed."""

from __future__ import annotations

__all__ = ("framework",)

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from aiomlc.errors import MissingPackageError


@contextmanager
def framework(package: str, extra: str) -> Iterator[None]:
    """Return the scope of a framework's imports.

    Args:
        package: The package that the framework is imported from.
        extra: The extra of aiomlc that installs it.

    Raises:
        MissingPackageError: If the package is not installed, or its version lacks a name.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != package:
            raise

        if find_spec(package) is None:
            raise MissingPackageError(package, f"pip install 'aiomlc[{extra}]'") from None

        reason = f"the installed version of {package} does not fit ({error})"
        command = f"pip install --upgrade 'aiomlc[{extra}]'"
        raise MissingPackageError(package, command, reason) from None
