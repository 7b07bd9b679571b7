"""The steps, the time and the memory that one rendering of a chat template may spend."""

from __future__ import annotations

__all__ = (
    "FULL",
    "MAX_TEXT",
    "QUICK",
    "Buffer",
    "RenderBudget",
    "RenderBudgetError",
    "RenderLimits",
    "TemplateLimitError",
    "active_budget",
    "charged",
)

import itertools
import time
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Sequence,
    ValuesView,
)
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, final

from aiomlc.errors import BadRequestError

MAX_TEXT = 2_000_000  #: The maximum number of characters of a prompt, and of any string.
_MAX_ITEMS = 50_000  # Of a list or mapping; sorting more takes too long without a check.
_MAX_DEPTH = 100  # Of nested lists and mappings.
_MAX_INTEGER_BITS = 4096
_MAX_WIDTH = 10_000  # Of padding and indentation.
_STEPS_PER_CLOCK_READING = 256
_CHARACTERS_PER_STEP = 1024
_BYTES_PER_ITEM = 64
_CHARACTERS_PER_NUMBER = 24
_CHARACTERS_OF_QUOTES = 4


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """The limits of one rendering."""

    steps: int  #: Loop iterations, calls, filters, outputs; operations on 1024 characters.
    seconds: float  #: CPU time of the thread.
    text: int  #: Characters of the prompt, and of any string.
    memory: int  #: Bytes of all strings and containers that the template makes.


#: The limits of a template.
FULL = RenderLimits(steps=1_000_000, seconds=1.0, text=MAX_TEXT, memory=48_000_000)
#: The limits of a template that may run in the thread of the event loop.
QUICK = RenderLimits(steps=10_000, seconds=0.005, text=50_000, memory=4_000_000)


class RenderBudgetError(Exception):
    """A template exceeds its limits; the message is a predicate, such as `takes more than ...`."""


class TemplateLimitError(BadRequestError):
    """A chat template exceeds the steps, the time, the text or the memory of its budget."""


@final
class RenderBudget:
    """The unspent part of the limits of one rendering.

    Args:
        is_cancelled: Whether the rendering should end, because nothing waits for it any more.
    """

    __slots__ = (
        "_deadline",
        "_is_cancelled",
        "_limits",
        "_memory_left",
        "_next_clock_reading",
        "_steps_left",
    )

    def __init__(
        self, limits: RenderLimits = FULL, *, is_cancelled: Callable[[], bool] | None = None
    ) -> None:
        self._limits = limits
        self._is_cancelled = is_cancelled
        self._steps_left = limits.steps
        self._memory_left = limits.memory
        self._deadline = time.thread_time() + limits.seconds
        self._next_clock_reading = self._steps_left - _STEPS_PER_CLOCK_READING

    @contextmanager
    def active(self) -> Iterator[None]:
        """Charge this budget for what templates do in this context."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)

    @property
    def max_text(self) -> int:
        """The maximum number of characters of a string."""
        return self._limits.text

    def spend(self, steps: int = 1) -> None:
        """Charge steps.

        Raises:
            RenderBudgetError: If no steps or no time is left, or the rendering was cancelled.
        """
        self._steps_left -= steps
        if self._steps_left < self._next_clock_reading:
            self.check_clock()

    def allocate(self, size: int) -> None:
        """Charge bytes of memory."""
        self._memory_left -= size
        if self._memory_left < 0:
            raise RenderBudgetError(
                f"makes more than {self._limits.memory // 1_000_000} MB of text"
            )

    def grow(self, characters: int) -> None:
        """Require that a string may have this many characters, and charge the work to make it."""
        if characters > self._limits.text:
            raise RenderBudgetError(f"makes a string of more than {self._limits.text} characters")

        self.spend(1 + characters // _CHARACTERS_PER_STEP)

    def check_text(self, text: str) -> str:
        """Charge a new string, and return it."""
        length = len(text)
        if length > _CHARACTERS_PER_STEP:
            self.grow(length)
            self.allocate(getsizeof(text))
            return text

        # Most strings, so this path is short. The clock's check refuses a negative rest.
        self._memory_left -= length
        self._steps_left -= 1
        if self._steps_left < self._next_clock_reading:
            self.check_clock()

        return text

    def check_items(self, number: int) -> None:
        """Check the number of a container's items, and subtract them from the budget."""
        self._check_length(number)
        self.spend(1 + number // 16)
        self.allocate(number * _BYTES_PER_ITEM)

    def check_integer_bits(self, bits: int) -> None:
        """Require that an integer may have this many bits."""
        if bits > _MAX_INTEGER_BITS:
            raise RenderBudgetError(f"makes an integer of more than {_MAX_INTEGER_BITS} bits")

    def check_width(self, width: object) -> None:
        """Require that an argument such as a number of columns is small."""
        if isinstance(width, (int, float)) and not -_MAX_WIDTH <= width <= _MAX_WIDTH:
            raise RenderBudgetError(f"pads or splits text by more than {_MAX_WIDTH}")

    def check(self, value: Any) -> Any:  # noqa: ANN401 - any value of a template.
        """Charge a new value, and return it; an iterator is charged while it is read."""
        if isinstance(value, str):
            return self.check_text(value)

        if isinstance(value, int):
            self.check_integer_bits(value.bit_length())
        elif isinstance(value, (list, tuple, dict, set)):
            self.check_items(len(value))
        elif isinstance(value, Iterator):
            return charged(value, self)

        return value

    def check_tree(self, value: object) -> int:
        """Charge every item of nested lists and mappings; return their characters as text.

        Items that are shared count each time, as writing and comparing visit them each time.
        """
        characters = depth = 0
        level: Sequence[object] = (value,)
        while level:
            if depth > _MAX_DEPTH:
                raise RenderBudgetError(f"nests more than {_MAX_DEPTH} lists or mappings")

            self._check_length(len(level))
            self.spend(len(level))
            inner: list[object] = []
            for each in level:
                if isinstance(each, str):
                    characters += len(each) + _CHARACTERS_OF_QUOTES
                else:
                    characters += _length_as_text(each)
                    inner.extend(_children(each))

            level = inner
            depth += 1

        self.grow(characters)
        return characters

    def _check_length(self, number: int) -> None:
        if number > _MAX_ITEMS:
            raise RenderBudgetError(f"makes a list of more than {_MAX_ITEMS} items")

    def check_clock(self) -> None:
        """Require that steps, memory and time are left, and that nothing cancelled the rendering.

        Raises:
            RenderBudgetError: Otherwise.
        """
        self._next_clock_reading = self._steps_left - _STEPS_PER_CLOCK_READING
        if self._steps_left < 0:
            raise RenderBudgetError(f"takes more than {self._limits.steps} steps")

        self.allocate(0)
        if time.thread_time() > self._deadline:
            raise RenderBudgetError(f"takes more than {self._limits.seconds} s")

        if self._is_cancelled is not None and self._is_cancelled():
            raise RenderBudgetError("was cancelled")


_active: ContextVar[RenderBudget | None] = ContextVar("_active", default=None)


def active_budget() -> RenderBudget:
    """Return the budget of the current context; without one, a new one."""
    return _active.get() or RenderBudget()


def charged(values: Iterable[Any], budget: RenderBudget) -> Iterator[Any]:
    """Yield the values, and spend a step for each."""
    for value in values:
        budget.spend()
        yield value


@final
class Buffer(list[str]):
    """The text that a template, a macro or a block has written."""

    def __init__(self, budget: RenderBudget) -> None:
        super().__init__()
        self._budget = budget
        self._length = 0

    def append(self, text: str) -> None:
        """Add text, and charge it."""
        self._length += len(text)
        if self._length > self._budget.max_text:
            raise RenderBudgetError(f"writes more than {self._budget.max_text} characters")

        super().append(self._budget.check_text(text))

    def extend(self, texts: Iterable[str]) -> None:
        """Append strings, and subtract them from the budget."""
        for text in texts:
            self.append(text)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return itertools.chain(value.keys(), value.values())

    if isinstance(value, (list, tuple, set, KeysView, ValuesView, ItemsView)):
        return value

    return ()


def _length_as_text(value: object) -> int:
    return value.bit_length() // 3 if isinstance(value, int) else _CHARACTERS_PER_NUMBER
