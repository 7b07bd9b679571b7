"""Sequences of a core as the scheduler reference tracks them, and the reader of step events."""

from __future__ import annotations

__all__ = (
    "PAGE_SIZE",
    "CoreLimits",
    "EventReader",
    "ExpectedOutput",
    "Inbox",
    "TracedSequence",
)

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from aiomlc.runtime.engine.trace import EventKind, TraceEvent

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """The limits with which a core was opened."""

    total_pages: int
    max_running: int
    step_token_budget: int
    max_queue_size: int
    max_recycling: int  #: Of the prefix cache; -1 for no limit, 0 without a prefix cache.
    has_drafts: bool
    separate_prefill: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """The complete output of a sequence, which does not depend on other sequences."""

    token_ids: tuple[int, ...]  #: With the stop token, if one ends the output.
    finish_reason: str

    @property
    def completion_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(slots=True, eq=False)
class TracedSequence:
    """The progress of a sequence."""

    id: int
    priority: int
    prompt: tuple[int, ...]
    expected: ExpectedOutput
    is_pinned: bool = False
    limit: str | None = None  #: Name of its time limit, which expires at the next step.
    deadline_order: int | None = None  #: Position among all deadlines; None while none runs.
    model_id: int = -1  #: Id in the prefix cache; a pause assigns a new one.
    num_generated: int = 0  #: Completion tokens, including a stop token.
    num_computed: int = 0  #: Tokens in the KV cache.
    held_pages: int = 0
    num_cached: int | None = None  #: Cached prompt tokens at its first admission.
    is_in_prefix_cache: bool = False  #: Whether it generated a token since its admission.
    min_times_bypassed: int = 0  #: Later arrivals admitted before it for lack of pages.
    max_times_bypassed: int = 0
    finish_reason: str | None = None

    def __lt__(self, other: TracedSequence) -> bool:
        return (self.priority, self.id) < (other.priority, other.id)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + self.num_generated

    @property
    def pages(self) -> int:
        """Pages for all of its tokens."""
        return -(-self.num_tokens // PAGE_SIZE)

    @property
    def is_decoding(self) -> bool:
        return self.num_generated > 0 and self.num_tokens - self.num_computed == 1

    @property
    def generated_ids(self) -> tuple[int, ...]:
        return self.expected.token_ids[: self.num_generated]

    def num_common(self, other: TracedSequence) -> int:
        """Return how many tokens a fork of another sequence can reuse; the last one never is."""
        tokens = (self.prompt + self.generated_ids)[: self.num_tokens - 1]
        pairs = zip(tokens, other.prompt + other.generated_ids, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@dataclass(slots=True)
class Inbox:
    """Calls since the last step."""

    submitted: list[TracedSequence] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    unpinned: list[int] = field(default_factory=list)
    pauses: list[tuple[int, bool]] = field(default_factory=list)
    is_reset: bool = False


class EventReader:
    """Reader of the events of one step in their order."""

    def __init__(self, events: Iterable[TraceEvent]) -> None:
        self._remaining = list(reversed(list(events)))

    def take(self, *kinds: EventKind) -> list[TraceEvent]:
        """Take the next events as long as they have one of the kinds."""
        taken = []
        while self._remaining and self._remaining[-1].kind in kinds:
            taken.append(self._remaining.pop())
        return taken

    def expect(self, kind: EventKind, sequence_id: int, *values: int | str) -> None:
        """Take the next event, which must be the given one."""
        event = self._remaining.pop() if self._remaining else None
        actual = event and (event.kind, event.sequence_id, *event.fields().values())
        expected = (kind, sequence_id, *values)
        assert actual == expected, f"expected event {expected}, got {actual}"

    def expect_end(self) -> None:
        """Check that no event is left."""
        assert not self._remaining, f"unexpected events {list(reversed(self._remaining))}"
