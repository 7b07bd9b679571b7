"""Unpacking of the native core's records."""

from __future__ import annotations

import logging
import struct

import pytest

from aiomlc.runtime.native.record_codec import unpack_records


def packed(
    sequence_id: int, *, ids: tuple[int, ...] = (), text: str = "", error: str = ""
) -> bytes:
    """Pack a record that is not the last one of its sequence."""
    sizes = (len(ids), 0, 0, len(text.encode()), len(error.encode()), 0)
    header = struct.pack("<qqqqIIIIII", sequence_id, 3, len(ids), 0, *sizes)
    return header + struct.pack(f"<{len(ids)}i", *ids) + text.encode() + error.encode()


def test_notice_is_logged_and_not_returned(caplog: pytest.LogCaptureFixture) -> None:
    notice = packed(-1, error="drafting failed: é")
    records = unpack_records(packed(5, ids=(7,), text="a") + notice + packed(6, ids=(8, 9)))

    assert [(record.sequence_id, record.token_ids) for record in records] == [
        (5, (7,)),
        (6, (8, 9)),
    ]
    assert [record.getMessage() for record in caplog.records] == ["drafting failed: é"]


def test_failing_log_filter_drops_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(record: logging.LogRecord) -> bool:
        raise ValueError("deliberate filter failure")

    logger = logging.getLogger("aiomlc")
    logger.addFilter(fail)
    try:
        records = unpack_records(packed(-1, error="no") + packed(5, ids=(7,), text="a"))
    finally:
        logger.removeFilter(fail)

    assert [record.text for record in records] == ["a"]
    assert "deliberate filter failure" in capsys.readouterr().err
