"""The requests of a batch that have no answer yet."""

from __future__ import annotations

__all__ = ("BatchPlan", "InvalidLine", "plan_batch", "read_line")

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, final

from aiomlc.batch.lines import RejectedLine, parse_line
from aiomlc.batch.output_file import Answers, OutputFile, digest
from aiomlc.errors import BadRequestError

_MAX_LINE_BYTES = 64 << 20
_MAX_INVALID_LINES = 100


@dataclass(frozen=True, slots=True)
class InvalidLine:
    """A line of the input that has no `custom_id`, and so gets no line of the output."""

    number: int  #: From 1.
    message: str


@dataclass(slots=True)
class BatchPlan:
    """The lines without an answer, by the offsets where they begin, and what was counted."""

    pending: array[int] = field(default_factory=lambda: array("q"))
    duplicates: array[int] = field(default_factory=lambda: array("q"))  #: With a repeated id.
    total: int = 0  #: Lines of the input that get a line of the output.
    num_failed: int = 0  #: Lines of the output with an error.
    num_invalid: int = 0
    invalid_lines: list[InvalidLine] = field(default_factory=list)  #: The first of them.


def plan_batch(path: Path, output: OutputFile, is_cancelled: Callable[[], bool]) -> BatchPlan:
    """Compare the input with the output.

    Memory grows with the number of requests, by about 250 bytes each, and not with their sizes.

    Raises:
        BadRequestError: If the output does not belong to the input.
        OSError: If a file cannot be read or written.
    """
    answers = output.recover(is_cancelled)
    planner = _Planner(answers)
    with path.open("rb") as file:
        for number, (offset, line) in enumerate(_lines(file), start=1):
            if is_cancelled():
                break

            planner.add(number, offset, line)

    if not is_cancelled():
        planner.check_output(path)

    return planner.plan


def read_line(file: BinaryIO, offset: int) -> bytes:
    """Return the line of at most 64 MiB that begins at an offset; longer ones are cut off."""
    file.seek(offset)
    return file.readline(_MAX_LINE_BYTES + 1)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the text of each line; longer ones than the limit are cut off."""
    offset = 0
    while line := file.readline(_MAX_LINE_BYTES + 1):
        yield offset, line
        offset += len(line)
        while len(line) > _MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(_MAX_LINE_BYTES + 1)
            offset += len(line)


@final
class _Planner:
    def __init__(self, answers: Answers) -> None:
        self.plan = BatchPlan(num_failed=answers.num_failed)
        self._answers = answers
        self._counts: Counter[bytes] = Counter()  # How often an id has occurred.

    def add(self, number: int, offset: int, line: bytes) -> None:
        """Take a line of the input."""
        if not line.strip():
            return

        parsed = _too_long(line) or parse_line(line)
        if parsed.custom_id is None:
            self._add_invalid(InvalidLine(number, parsed.message))
            return

        self.plan.total += 1
        key = digest(parsed.custom_id)
        self._counts[key] += 1
        if self._counts[key] == 1:
            if key not in self._answers.ids:
                self.plan.pending.append(offset)
        elif self._counts[key] - 1 > self._answers.duplicates[key]:
            self.plan.duplicates.append(offset)

    def _add_invalid(self, line: InvalidLine) -> None:
        self.plan.num_invalid += 1
        if len(self.plan.invalid_lines) < _MAX_INVALID_LINES:
            self.plan.invalid_lines.append(line)

    def check_output(self, path: Path) -> None:
        """Require that every answer belongs to a request.

        Raises:
            BadRequestError: If one does not.
        """
        strangers = len(self._answers.ids - self._counts.keys())
        if strangers:
            raise BadRequestError(
                f"the output answers {strangers} requests that {path} does not have: it belongs "
                "to another input; choose another output",
                param="output",
            )


def _too_long(line: bytes) -> RejectedLine | None:
    if len(line) <= _MAX_LINE_BYTES:
        return None

    return RejectedLine(
        "invalid_json_line", f"the line must have at most {_MAX_LINE_BYTES:,} bytes"
    )
