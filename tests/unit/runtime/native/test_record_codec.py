"""What the native core writes, as records."""

from __future__ import annotations

import logging
import struct

import pytest

from aiomlc.runtime.native.record_codec import unpack_records


def packed(
    sequence_id: int, *, ids: tuple[int, ...] = (), text: str = "", error: str = ""
) -> bytes:
    """A record that is not a sequence's last one."""
    sizes = (len(ids), 0, 0, len(text.encode()), len(error.encode()), 0)
    header = struct.pack("<qqqqIIIIII", sequence_id, 3, len(ids), 0, *sizes)
    return header + struct.pack(f"<{len(ids)}i", *ids) + text.encode() + error.encode()


def test_a_notice_goes_to_the_log_and_is_no_record(caplog: pytest.LogCaptureFixture) -> None:
    notice = packed(-1, error="guessing failed: é")
    records = unpack_records(packed(5, ids=(7,), text="a") + notice + packed(6, ids=(8, 9)))

    assert [(record.sequence_id, record.token_ids) for record in records] == [
        (5, (7,)),
        (6, (8, 9)),
    ]
    assert [record.getMessage() for record in caplog.records] == ["guessing failed: é"]


def test_a_log_that_raises_costs_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise ValueError("a filter of the program")

    logger = logging.getLogger("aiomlc")
    logger.addFilter(refuse)
    try:
        records = unpack_records(packed(-1, error="no") + packed(5, ids=(7,), text="a"))
    finally:
        logger.removeFilter(refuse)

    assert [record.text for record in records] == ["a"]
    assert "a filter of the program" in capsys.readouterr().err
