"""Answers the requests of a batch, many at once."""

from __future__ import annotations

__all__ = ("BatchProgress", "BatchSummary", "run_batch")

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO, Final, final

from anyio import CapacityLimiter, create_task_group, sleep, to_thread
from pydantic import BaseModel

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.generation.overload_retries import OverloadRetries
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.completion import parse_completion_request
from aiomlc.api.protocol.embedding import parse_embedding_request
from aiomlc.api.protocol.limits import check_input_size, check_sizes, parse_off_loop
from aiomlc.batch.lines import (
    DUPLICATE,
    URLS,
    BatchRequest,
    RejectedLine,
    error_line,
    parse_line,
    response_line,
)
from aiomlc.batch.output_file import OutputFile
from aiomlc.batch.plan import BatchPlan, InvalidLine, plan_batch, read_line
from aiomlc.errors import (
    BadRequestError,
    EngineOverloadedError,
    RequestError,
    RequestFailedError,
)
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.serve.http.fields import prepare_fields
from aiomlc.serve.http.http_errors import HTTPError, to_http_error
from aiomlc.serve.http.json_text import to_json
from aiomlc.serve.models import ModelRegistry, Served, to_registry
from aiomlc.serve.options import ServerOptions
from aiomlc.validation.json_values import short_repr
from aiomlc.validation.regular_files import open_regular_file
from aiomlc.validation.shortages import names_shortages

DEFAULT_IN_FLIGHT: Final = 64  # Twice the sequences of mode "local", so that none has to wait.
_OPTIONS = ServerOptions(max_choices=1024)
_SYNC_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The progress of a batch."""

    total: int  #: Requests of the input, each of which gets a line of the output.
    done: int  #: Lines of the output, those of earlier runs included.
    failed: int  #: Lines of the output that have an error.


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The result of one run of a batch."""

    total: int  #: Requests of the input, which are also the lines of the output.
    written: int  #: Lines that this run wrote; the others are of earlier runs.
    failed: int  #: Lines of the output that have an error.
    num_invalid: int  #: Lines of the input that have no `custom_id`, and so no answer.
    invalid_lines: tuple[InvalidLine, ...]  #: The first 100 of them.


@names_shortages
async def run_batch(
    models: Served | Mapping[str, Served],
    input_path: str | PathLike[str],
    output_path: str | PathLike[str],
    *,
    max_in_flight: int = DEFAULT_IN_FLIGHT,
    on_progress: Callable[[BatchProgress], None] | None = None,
) -> BatchSummary:
    """Answer a file of requests in OpenAI's batch format.

    Each line of the input is a JSON object with `custom_id`, `method`, `url` and `body`, for
    `/v1/chat/completions`, `/v1/completions` or `/v1/embeddings`. A line is appended to the output
    when its answer is complete, in any order: `id`, `custom_id`, `response` (`status_code`,
    `request_id`, `body`) and `error`. A request that is invalid or fails gets a line that says why.

    A batch may be ended at any moment, by cancellation as well as by SIGKILL: called again with the
    same files, this function answers what is missing, once. A line is written by one call of
    `write`; a last line without an end is cut off at the start. Every 5 s and at the end, what was
    written is forced to the disk, so that a power failure costs the last seconds at most. The
    output is locked meanwhile.

    Args:
        models: What answers, as for `aiomlc.serve.create_app`: an engine, the name of a model, or
            several by the names in `body.model`. With one, `body.model` may be any name. Models
            that are not open are opened if a request is left, and closed at the end.
        input_path: The requests.
        output_path: The answers; created if it does not exist.
        max_in_flight: The maximum number of concurrent requests.
        on_progress: Called at the start and after every answer, in the event loop.

    Raises:
        BadRequestError: If an argument is invalid, the output is being written by another process,
            or is not the output of this input.
        OSError: If a file cannot be opened, read or written.
        ModelLoadError: If a model cannot be opened.
        EngineError: If an engine ends meanwhile; the other requests are left to the next run.
    """
    if type(max_in_flight) is not int or max_in_flight < 1:
        raise BadRequestError(
            f"max_in_flight: must be a positive integer, got {short_repr(max_in_flight)}",
            param="max_in_flight",
        )

    registry = to_registry(models)
    source, target = Path(fspath(input_path)), Path(fspath(output_path))
    with _open_files(source, target) as (file, output):
        plan = await run_in_worker(partial(plan_batch, source, output))
        run = _BatchRun(plan, file, output, registry, on_progress)
        await run.answer_all(max_in_flight)
        return run.summary()


@contextmanager
def _open_files(source: Path, target: Path) -> Iterator[tuple[BinaryIO, OutputFile]]:
    with _open_input(source) as file, OutputFile(target) as output:
        if output.is_same_file(source):
            raise BadRequestError(f"{target}: the output must be another file", param="output")

        yield file, output


def _open_input(path: Path) -> BinaryIO:
    try:
        return open_regular_file(path)
    except ValueError as error:  # It is read more than once.
        raise BadRequestError(f"{path}: the input {error}", param="input") from None


@final
class _BatchRun:
    """The rest of a batch."""

    def __init__(
        self,
        plan: BatchPlan,
        file: BinaryIO,
        output: OutputFile,
        registry: ModelRegistry,
        on_progress: Callable[[BatchProgress], None] | None,
    ) -> None:
        self._plan = plan
        self._file = file
        self._output = output
        self._registry = registry
        self._on_progress = on_progress
        self._num_left = len(plan.pending) + len(plan.duplicates)
        self._num_failed = plan.num_failed
        self._num_written = 0
        self._retries = OverloadRetries()
        self._reading = CapacityLimiter(1)  # The file has one position.

    def summary(self) -> BatchSummary:
        return BatchSummary(
            total=self._plan.total,
            written=self._num_written,
            failed=self._num_failed,
            num_invalid=self._plan.num_invalid,
            invalid_lines=tuple(self._plan.invalid_lines),
        )

    async def answer_all(self, max_in_flight: int) -> None:
        """Append a line for every line of the input that has none."""
        self._report()
        try:
            await self._reject_duplicates()
            if self._plan.pending:
                await self._registry.open()
                await self._run_workers(min(max_in_flight, len(self._plan.pending)))
        except BaseExceptionGroup as group:
            cause = _first_error(group)
            raise cause from cause.__cause__
        finally:
            self._registry.terminate()

        await to_thread.run_sync(self._output.sync)

    async def _run_workers(self, number: int) -> None:
        offsets = iter(self._plan.pending)
        async with create_task_group() as background:
            background.start_soon(self._sync_now_and_then)
            async with create_task_group() as workers:
                for _ in range(number):
                    workers.start_soon(self._work, offsets)

            background.cancel_scope.cancel()

    async def _sync_now_and_then(self) -> None:
        while True:
            await sleep(_SYNC_SECONDS)
            await to_thread.run_sync(self._output.sync)

    async def _reject_duplicates(self) -> None:
        for offset in self._plan.duplicates:
            custom_id, _ = await self._read(offset)
            message = f"custom_id: an earlier line of the input has the same, {custom_id!r}"
            self._append(error_line(custom_id, DUPLICATE, message), is_ok=False)

    async def _work(self, offsets: Iterator[int]) -> None:
        for offset in offsets:
            custom_id, request = await self._read(offset)
            if isinstance(request, RejectedLine):
                line = error_line(custom_id, request.code, request.message)
                self._append(line, is_ok=False)
            else:
                status, body = await self._respond(request)
                # Nothing is awaited between an answer and its line.
                line = response_line(custom_id, status, body)
                self._append(line, is_ok=status == _OK)

    async def _read(self, offset: int) -> tuple[str, BatchRequest | RejectedLine]:
        parsed = await to_thread.run_sync(self._parse_line_at, offset, limiter=self._reading)
        if parsed.custom_id is None:
            raise BadRequestError(
                "the input was changed while the batch was running; start it again", param="input"
            )

        return parsed.custom_id, parsed

    def _parse_line_at(self, offset: int) -> BatchRequest | RejectedLine:
        return parse_line(read_line(self._file, offset))

    async def _respond(self, request: BatchRequest) -> tuple[int, bytes]:
        """Return the status and the body that the server would answer with."""
        try:
            return _OK, to_json(
                await self._retries.run(
                    partial(self._complete, request), partial(self._is_idle, request)
                )
            )
        except HTTPError as error:
            return error.status, to_json(error.body())
        except (RequestError, RequestFailedError, EngineOverloadedError) as error:
            http_error = to_http_error(error)
            return http_error.status, to_json(http_error.body())

    async def _complete(self, request: BatchRequest) -> BaseModel:
        model = self._registry.find(request.body.get("model"))
        endpoint = _ENDPOINTS[request.url]
        fields = prepare_fields(request.body, model.name, _OPTIONS)
        return await endpoint.complete(model.engine, await _parse(endpoint, fields))

    def _is_idle(self, request: BatchRequest) -> bool:
        engine = self._registry.find(request.body.get("model")).engine
        statistics = engine.statistics()
        return statistics.num_running + statistics.num_waiting == 0

    def _append(self, line: bytes, *, is_ok: bool) -> None:
        self._output.append(line)
        self._num_written += 1
        self._num_failed += not is_ok
        self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            done = self._plan.total - self._num_left + self._num_written
            self._on_progress(BatchProgress(self._plan.total, done, self._num_failed))


@dataclass(frozen=True, slots=True)
class _Endpoint:
    parse: Callable[[Mapping[str, Any]], Any]
    check: Callable[[Mapping[str, Any]], None]  #: Of the sizes of a large request.
    complete: Callable[[AsyncMLCEngine, Any], Awaitable[BaseModel]]


_OK = 200
_ENDPOINTS: Mapping[str, _Endpoint] = dict(
    zip(
        URLS,
        (
            _Endpoint(
                parse_chat_request,
                check_sizes,
                lambda engine, request: engine.chat.completions.complete(request),
            ),
            _Endpoint(
                parse_completion_request,
                check_sizes,
                lambda engine, request: engine.completions.complete(request),
            ),
            _Endpoint(
                parse_embedding_request,
                check_input_size,
                lambda engine, request: engine.embeddings.embed(request),
            ),
        ),
        strict=True,
    )
)


async def _parse(endpoint: _Endpoint, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - its own.
    if fields.get("stream"):
        raise BadRequestError("stream: is not supported in a batch", param="stream")

    return await parse_off_loop(endpoint.parse, fields, endpoint.check)


def _first_error(group: BaseExceptionGroup) -> BaseException:
    """Return the first error of a group: an engine that ends fails every request."""
    first = group.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first
