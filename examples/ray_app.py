"""Two replicas of an engine behind one address, on Ray Serve.

    .venv/bin/pip install -e '.[ray]'
    .venv/bin/serve run examples.ray_app:app
    curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"messages": [{"role": "user", "content": "Hello"}]}'

Conversations with the same system prompt go to the same replica, whose prefix cache has it. When
run as a program, this file starts Ray on this computer, asks for some sums at once, and stops it.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import ray
from ray import serve

from aiomlc.ray import RayOptions, build_app

URL = "http://127.0.0.1:8000/v1/chat/completions"

app = build_app(options=RayOptions(num_replicas=2))


def ask(number: int) -> str:
    messages = [{"role": "user", "content": f"What is {number} plus 7?"}]
    body = json.dumps({"messages": messages, "temperature": 0}).encode()
    request = Request(URL, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        answer: str = json.load(response)["choices"][0]["message"]["content"]

    return answer


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    serve.run(app)
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(ask, range(1, 9)):
            print(answer)

    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
