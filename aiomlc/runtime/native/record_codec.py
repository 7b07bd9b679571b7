"""Decoding of the native engine's results (`native/src/ffi/{core,records}.cc`)."""

from __future__ import annotations

__all__ = ("EMPTY_TRACE", "read_statistics", "unpack_records", "unpack_trace")

import logging
import struct
import traceback
from dataclasses import fields
from typing import Any, get_args

from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record
from aiomlc.runtime.engine.packed_logprobs import PackedLogprobs
from aiomlc.runtime.engine.statistics import (
    DecodeSteps,
    DraftPosition,
    FinishedRequest,
    Histogram,
    RequestTiming,
)
from aiomlc.runtime.engine.trace import EventKind, TraceEvent

EMPTY_TRACE = struct.pack("<q", 0)  # The number of the first event, and no event.

_LOG = logging.getLogger("aiomlc")
_FINISH_REASONS = (None, "stop", "length", "abort", "error", "timeout")
# The header of a record: id; prompt, completion and cached tokens; number of token ids; bytes of
# logprobs, prompt logprobs, text and error; finish reason. It is followed by the token ids, by
# those bytes and, if there is a finish reason, by the timing.
_RECORD = struct.Struct("<qqqqIIIIII")
_ONE_ID = struct.Struct("<i")  # The most frequent number.
_TIMING = struct.Struct("<dddq")
# An event: sequence id, start and duration in nanoseconds, kind, six values.
_EVENT = struct.Struct("<qqq7i")
_EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)
_HISTOGRAMS = (
    *("queue_seconds", "first_token_seconds", "inter_token_seconds", "request_seconds"),
    *("request_prompt_tokens", "request_completion_tokens", "batch_size"),
)
_STEPS = ("decode_steps", "verify_steps", "draft_steps")
_CONVERTED = ("finished", "draft_positions", "speculation_failure", "last_finished")
_COUNTERS = tuple(
    field.name
    for field in fields(CoreStatistics)
    if field.name not in (*_HISTOGRAMS, *_STEPS, *_CONVERTED)
)


def unpack_records(packed: bytes) -> list[Record]:
    """Decode the result of `core_drain`, and log its notices."""
    records: list[Record] = []
    offset = 0
    while offset < len(packed):
        (
            sequence_id,
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            num_ids,
            logprobs_size,
            prompt_size,
            text_size,
            error_size,
            finish_reason,
        ) = _RECORD.unpack_from(packed, offset)
        ids_at = offset + _RECORD.size
        logprobs_at = ids_at + 4 * num_ids
        if num_ids == 1 and not (logprobs_size or prompt_size or error_size or finish_reason):
            # The fast path of nearly every record.
            offset = logprobs_at + text_size
            records.append(
                Record(
                    sequence_id,
                    packed[logprobs_at:offset].decode(),
                    _ONE_ID.unpack_from(packed, ids_at),
                    None,
                    None,
                    prompt_tokens,
                    completion_tokens,
                    cached_tokens,
                )
            )
            continue

        prompt_at = logprobs_at + logprobs_size
        text_at = prompt_at + prompt_size
        error_at = text_at + text_size
        end = error_at + error_size
        offset = end + _TIMING.size if finish_reason else end
        if sequence_id < 0:
            _warn(packed[error_at:end].decode(errors="replace"))
            continue

        records.append(
            Record(
                sequence_id,
                packed[text_at:error_at].decode(),
                struct.unpack_from(f"<{num_ids}i", packed, ids_at),
                _FINISH_REASONS[finish_reason],
                packed[error_at:end].decode(errors="replace") if error_size else None,
                prompt_tokens,
                completion_tokens,
                cached_tokens,
                PackedLogprobs(packed[logprobs_at:prompt_at]) if logprobs_size else (),
                _timing(*_TIMING.unpack_from(packed, end)) if finish_reason else None,
                PackedLogprobs(packed[prompt_at:text_at]) if prompt_size else (),
            )
        )
    return records


def _warn(notice: str) -> None:
    try:
        _LOG.warning("%s", notice)
    except Exception:  # noqa: BLE001 - of a filter or handler; the records must arrive.
        traceback.print_exc()


def _timing(queue: float, first_token: float, total: float, forced_tokens: int) -> RequestTiming:
    return RequestTiming(
        None if queue < 0 else queue,
        None if first_token < 0 else first_token,
        total,
        forced_tokens,
    )


def read_statistics(native: Any) -> CoreStatistics:  # noqa: ANN401 - an FFI struct.
    """Convert the result of `core_statistics`."""
    values = {name: getattr(native, name) for name in _COUNTERS}
    for name in _HISTOGRAMS:
        histogram = getattr(native, name)()
        values[name] = Histogram(tuple(histogram.bounds), tuple(histogram.counts), histogram.sum)

    for name in _STEPS:
        rows = getattr(native, name)()
        values[name] = {int(size): DecodeSteps(int(num), seconds) for size, num, seconds in rows}

    reasons = zip(_FINISH_REASONS, native.ended(), strict=True)
    return CoreStatistics(
        **values,
        finished={reason: count for reason, count in reasons if reason is not None},
        draft_positions=tuple(DraftPosition(*counts) for counts in native.draft_positions()),
        speculation_failure=str(native.speculation_failure) or None,
        last_finished=_last_finished(native.last_finished()),
    )


def _last_finished(native: Any) -> FinishedRequest | None:  # noqa: ANN401 - an FFI struct.
    if native.total_seconds < 0:
        return None

    return FinishedRequest(
        native.prompt_tokens,
        native.completion_tokens,
        native.cached_tokens,
        _timing(
            native.queue_seconds,
            native.first_token_seconds,
            native.total_seconds,
            native.forced_tokens,
        ),
    )


def unpack_trace(packed: bytes) -> tuple[int, list[TraceEvent]]:
    """Decode the result of `core_read_trace`: the number of the first event, and the events."""
    (first,) = struct.unpack_from("<q", packed)
    events = [
        TraceEvent(_EVENT_KINDS[kind], sequence_id, start_ns, duration_ns, tuple(values))
        for sequence_id, start_ns, duration_ns, kind, *values in _EVENT.iter_unpack(packed[8:])
    ]
    return first, events
