from __future__ import annotations

import json

from aiomlc import JSONFFIEngine


def test_json_request_gets_the_completion_and_its_usage() -> None:
    request = {"messages": [{"role": "user", "content": "What is 12 plus 30?"}], "temperature": 0}
    with JSONFFIEngine() as engine:
        batches = [json.loads(text) for text in engine.chat_completion(json.dumps(request))]
        objects = list(engine.chat.completions.create(**request))  # type: ignore[arg-type]

    chunks = [chunk for batch in batches for chunk in batch]
    text = "".join(
        choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]
    )
    assert "42" in text
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert "".join(chunk.choices[0].delta.content or "" for chunk in objects) == text
