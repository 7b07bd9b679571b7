"""Requests that Schemathesis makes from our own description of the API."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode

from aiomlc.serve.endpoints.openapi import openapi_document
from tests.e2e.raw_http import Answer, assert_typed, exchange, request_of
from tests.e2e.serve_process import ServerProcess, run_server

_NUM_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "12"))
_SEED = int(os.environ.get("AIOMLC_SEED", "0"))
_OPERATIONS: dict[str, Any] = {
    operation.label: operation
    for operation in (
        cast(Any, result).ok()
        for result in schemathesis.openapi.from_dict(openapi_document()).get_all_operations()
    )
}
# Forms with audio are not JSON: tests/unit/serve/test_transcriptions.py has theirs.
_JSON_POSTS = [name for name in _OPERATIONS if name.startswith("POST") and "/audio/" not in name]
_SETTINGS = settings(
    max_examples=_NUM_EXAMPLES,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(120 + 2 * _NUM_EXAMPLES)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the bundled model."""
    overrides = ("--overrides", "max_single_sequence_length=256")
    with run_server(tmp_path_factory.mktemp("server"), *overrides) as process:
        yield process


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("label", _JSON_POSTS)
def test_generated_fields_end_in_typed_answers(
    server: ServerProcess, label: str, mode: GenerationMode
) -> None:
    operation = _OPERATIONS[label]
    statuses = set()

    @seed(_SEED)
    @_SETTINGS
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Case[Any]) -> None:
        with server.http() as client:
            body: Any = case.body
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            response = client.post(
                case.path, **content, headers={"content-type": "application/json"}
            )

        statuses.add(response.status_code)
        headers = {b"content-type": response.headers["content-type"].encode()}
        assert_typed(Answer(response.status_code, headers, response.content, is_complete=True))

    send()
    assert statuses <= {200, 400, 404, 408}
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        server.wait_for(f"aiomlc:{gauge}", 0)

    (answer,) = exchange(server, request_of({"prompt": "a"}, "/tokenize"))
    assert answer.status == 200
    assert "Traceback" not in server.log.read_text()
