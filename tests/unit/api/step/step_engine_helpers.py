"""Helpers for tests of `SyncMLCEngine`."""

from __future__ import annotations

import json
from typing import Any

from aiomlc import GenerationConfig, SyncMLCEngine, TextData
from aiomlc.api.step.data import RequestStreamOutput, SingleRequestStreamOutput
from aiomlc.testing import FakeCore, fake_loader


class CallbackLog:
    """A callback that records the outputs of each step."""

    def __init__(self) -> None:
        self.batches: list[list[RequestStreamOutput]] = []

    def __call__(self, outputs: list[RequestStreamOutput]) -> None:
        self.batches.append(outputs)

    def outputs(self, request_id: str) -> list[SingleRequestStreamOutput]:
        """Return the outputs of a request, without its usage."""
        outputs = self._all_outputs(request_id)
        return [output for output in outputs if output.request_final_usage_json_str is None]

    def usages(self, request_id: str) -> list[dict[str, Any]]:
        """Return the usages of the requests with this id."""
        texts = [output.request_final_usage_json_str for output in self._all_outputs(request_id)]
        return [json.loads(text) for text in texts if text is not None]

    def text(self, request_id: str) -> str:
        """Return the text of a request."""
        return "".join(output.delta_text for output in self.outputs(request_id))

    def _all_outputs(self, request_id: str) -> list[SingleRequestStreamOutput]:
        unpacked = [output.unpack() for batch in self.batches for output in batch]
        return [output for rid, outputs in unpacked for output in outputs if rid == request_id]


def make_engine(
    core: FakeCore | None = None,
    callback: CallbackLog | None = None,
    **options: Any,  # noqa: ANN401
) -> SyncMLCEngine:
    """Return an engine with a fake core; `options` are those of a new core."""
    return SyncMLCEngine(loader=fake_loader(core, **options), request_stream_callback=callback)


def add_request(engine: SyncMLCEngine, request_id: str, **options: Any) -> None:  # noqa: ANN401
    """Add a request for the prompt "Hello"; `options` are those of its config."""
    config = GenerationConfig(**options)
    engine.add_request(engine.create_request(request_id, TextData("Hello"), config))
