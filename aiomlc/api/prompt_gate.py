"""What is known of a prompt comes first, whichever of its choices is the quickest."""

from __future__ import annotations

__all__ = ("PromptGate",)

from typing import final

from aiomlc.runtime.core_protocol import TokenLogprob
from aiomlc.runtime.stream import Delta


@final
class PromptGate:
    """Holds the deltas of a request's choices back until the first choice speaks.

    That one alone has the prompt's log-probabilities, and computes the prompt for them, while the
    others may have found it in the KV cache.
    """

    def __init__(self) -> None:
        self.prompt: tuple[TokenLogprob, ...] | None = None  #: Set when the first delta passes.
        self._held: list[Delta] = []

    def put(self, delta: Delta) -> list[Delta]:
        """The deltas that may be told now, in order."""
        if self.prompt is not None:
            return [delta]

        if delta.choice != 0:
            self._held.append(delta)
            return []

        self.prompt = delta.prompt_logprobs
        passed, self._held = [delta, *self._held], []
        return passed
