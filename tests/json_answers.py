"""The callback of the JSON functions, for tests of every layer."""

from __future__ import annotations

__all__ = ("JSONAnswers",)

import json
import threading
from collections import defaultdict
from typing import Any, final


@final
class JSONAnswers:
    """Keeps the chunks that one thread is told, by request, for others to wait for."""

    def __init__(self) -> None:
        self.chunks: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._told = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._told:
            for chunk in json.loads(text):
                self.chunks[chunk["id"]].append(chunk)

            self._told.notify_all()

    def has_ended(self, request_id: str) -> bool:
        """Whether the usage was told, which is the last chunk of an answer."""
        told = self.chunks[request_id]
        return bool(told and told[-1]["usage"])

    def wait(
        self, request_id: str, *, chunks: int = 0, seconds: float = 10
    ) -> list[dict[str, Any]]:
        """Wait for so many chunks of an answer, or, without a number, for its end."""

        def is_there() -> bool:
            if chunks:
                return len(self.chunks[request_id]) >= chunks

            return self.has_ended(request_id)

        with self._told:
            assert self._told.wait_for(is_there, seconds), self.chunks
            return list(self.chunks[request_id])

    def text(self, request_id: str) -> str:
        """The text of an answer, when it has ended."""
        choices = [choice for chunk in self.wait(request_id) for choice in chunk["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    def reason(self, request_id: str) -> str:
        """Why an answer ended: its one finish reason."""
        choices = [choice for chunk in self.wait(request_id) for choice in chunk["choices"]]
        (reason,) = (choice["finish_reason"] for choice in choices if choice["finish_reason"])
        return str(reason)
