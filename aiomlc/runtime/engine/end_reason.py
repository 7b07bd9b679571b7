"""The reason why an engine does not serve."""

from __future__ import annotations

__all__ = ("EndReason",)

from typing import final

from aiomlc.errors import AiomlcError, EngineClosedError, EngineDeadError


@final
class EndReason:
    """The failure of an engine, or else the text of its `EngineClosedError`."""

    def __init__(self) -> None:
        self.text: str = str(EngineClosedError())
        self.failure: EngineDeadError | None = None

    def record_failure(self, error: Exception) -> None:
        """Record why the engine failed; only the first failure is kept."""
        if self.failure is not None:
            return

        if isinstance(error, EngineDeadError):
            self.failure = error
        else:
            self.failure = EngineDeadError(f"the engine failed: {error}")
            self.failure.__cause__ = error

    def new_error(self) -> AiomlcError:
        """Return a new error that contains the reason."""
        if self.failure is None:
            return EngineClosedError(self.text)

        # One instance per reader, since tasks that raise the same one would mix their tracebacks.
        error = EngineDeadError(str(self.failure))
        error.__cause__ = self.failure
        return error

    def only_other_cause(self, group: BaseExceptionGroup) -> BaseException | None:
        """Return the only exception of a group that does not follow from the engine's failure.

        The result is None if there is no such exception, or more than one.
        """
        causes = [error for error in group.exceptions if not self._follows_failure(error)]
        return causes[0] if len(causes) == 1 else None

    def _follows_failure(self, error: BaseException) -> bool:
        if isinstance(error, BaseExceptionGroup):
            return all(self._follows_failure(inner) for inner in error.exceptions)

        return self.failure is not None and error.__cause__ is self.failure
