"""A callback for the JSON functions that collects their chunks."""

from __future__ import annotations

__all__ = ("JSONAnswers",)

import json
import threading
from collections import defaultdict
from typing import Any, final


@final
class JSONAnswers:
    """The chunks that the callback has received, by request id; other threads can wait for them."""

    def __init__(self) -> None:
        self.chunks: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._changed = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._changed:
            for chunk in json.loads(text):
                self.chunks[chunk["id"]].append(chunk)

            self._changed.notify_all()

    def has_ended(self, request_id: str) -> bool:
        """Return whether the last chunk of a request, which has the usage, was received."""
        received = self.chunks[request_id]
        return bool(received and received[-1]["usage"])

    def wait(
        self, request_id: str, *, chunks: int = 0, seconds: float = 10
    ) -> list[dict[str, Any]]:
        """Wait for that number of chunks of a request, or by default for all of them."""

        def is_complete() -> bool:
            if chunks:
                return len(self.chunks[request_id]) >= chunks

            return self.has_ended(request_id)

        with self._changed:
            assert self._changed.wait_for(is_complete, seconds), self.chunks
            return list(self.chunks[request_id])

    def text(self, request_id: str) -> str:
        """Wait for all chunks of a request and return their content."""
        choices = [choice for chunk in self.wait(request_id) for choice in chunk["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    def reason(self, request_id: str) -> str:
        """Wait for all chunks of a request and return the finish reason."""
        choices = [choice for chunk in self.wait(request_id) for choice in chunk["choices"]]
        (reason,) = (choice["finish_reason"] for choice in choices if choice["finish_reason"])
        return str(reason)
