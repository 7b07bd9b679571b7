"""`aiomlc batch` with the bundled model, killed at random moments.

`AIOMLC_BATCH_REQUESTS=2000 AIOMLC_BATCH_KILLS=10` makes the test long.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion
from openai.types.shared import ErrorObject

from tests.e2e.programs import ROOT

NUM_REQUESTS = int(os.environ.get("AIOMLC_BATCH_REQUESTS", "120"))
NUM_KILLS = int(os.environ.get("AIOMLC_BATCH_KILLS", "3"))


def _write_requests(path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(NUM_REQUESTS):
            json.dump(_request(number), file)
            file.write("\n")


def _request(number: int) -> dict[str, Any]:
    question = f"What is {number % 50} plus {number % 7}?"
    body: dict[str, Any] = {"messages": [{"role": "user", "content": question}]}
    url = "/v1/chat/completions"
    if number % 10 == 3:
        url, body = "/v1/completions", {"prompt": "Count: 1, 2, 3,", "max_tokens": 1 + number % 9}
    elif number % 10 == 7:
        body["top_p"] = 2
    fields = {"model": "pebble", "temperature": 0, **body}
    return {"custom_id": f"request-{number}", "method": "POST", "url": url, "body": fields}


def _start(source: Path, target: Path) -> subprocess.Popen[str]:
    arguments = ["-W", "error", "-m", "aiomlc", "batch", str(source), str(target)]
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _end_at(process: subprocess.Popen[str], target: Path, number: int, how: signal.Signals) -> str:
    """Send a signal when the output has this many lines; return what the process wrote."""
    while _num_lines(target) < number and process.poll() is None:
        time.sleep(0.0005)

    process.send_signal(how)
    return process.communicate()[1]


@pytest.mark.timeout(200 + NUM_REQUESTS + 30 * NUM_KILLS)
def test_a_batch_that_is_killed_answers_each_request_once(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    _write_requests(source)
    rng = Random(20261123)
    kept = b""
    for moment in sorted(rng.sample(range(NUM_REQUESTS * 9 // 10), NUM_KILLS)):
        _end_at(_start(source, target), target, moment, signal.SIGKILL)
        texts = target.read_bytes() if target.exists() else b""
        assert texts.startswith(kept[: kept.rfind(b"\n") + 1])
        kept = texts

    process = _start(source, target)
    assert f"{NUM_REQUESTS:,} requests answered" in process.communicate()[1]
    assert process.returncode == 0
    assert target.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    lines = [json.loads(text) for text in target.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == NUM_REQUESTS
    by_id = {line["custom_id"]: line for line in lines}
    for number in range(NUM_REQUESTS):
        _check_line(number, by_id[f"request-{number}"])


def _check_line(number: int, line: dict[str, Any]) -> None:
    assert line["error"] is None
    status, body = line["response"]["status_code"], line["response"]["body"]
    if number % 10 == 7:
        assert (status, ErrorObject.model_validate(body["error"]).param) == (400, "top_p")
        return

    assert status == 200
    if number % 10 == 3:
        completion = Completion.model_validate(body)
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 1 + number % 9
        return

    answer = ChatCompletion.model_validate(body).choices[0].message.content
    assert answer is not None
    assert answer.startswith(f"{number % 50} + {number % 7} = ")


@pytest.mark.timeout(200)
def test_ctrl_c_says_how_to_continue(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    _write_requests(source)
    process = _start(source, target)
    errors = _end_at(process, target, 10, signal.SIGINT)

    assert process.returncode == 130
    (number,) = re.findall(
        rf"aiomlc: interrupted, (\d+) of {NUM_REQUESTS:,} requests answered.*; the same command "
        "answers the rest\n$",
        errors,
    )
    assert int(number) == _num_lines(target) < NUM_REQUESTS
