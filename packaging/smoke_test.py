"""Use an installed wheel: a chat with the bundled model, embeddings, and the server.

    python packaging/smoke_test.py

`packaging/smoke_test.sh` makes an environment that has the wheel, its dependencies and nothing
else, and runs this in it. It prints a line per check, and ends with the error of the first one that
fails.
"""

from __future__ import annotations

__all__ = ()

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from shutil import which

import aiomlc
from aiomlc import MLCEngine

# After the installed packages: only `tests` is found there.
ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
from tests.model.tiny_encoder import write_encoder  # noqa: E402

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "ld", "make", "cmake")
TIMEOUT = 120.0
"""Seconds that the server has to start and to end."""


def check_environment() -> str:
    """Check that the wheel is what is imported, and that no compiler is there."""
    package = Path(aiomlc.__file__).resolve()
    if ROOT in package.parents and Path(sys.prefix).resolve() not in package.parents:
        raise SystemExit(f"aiomlc is imported from {package}, not from the wheel")
    if found := [name for name in COMPILERS if which(name)]:
        raise SystemExit(f"there is a compiler: {found}; run this with a PATH without it")
    return f"aiomlc {aiomlc.__version__}, Python {sys.version.split()[0]}, no compiler"


def check_chat() -> str:
    """Return the answer of the bundled model to a sum."""
    with MLCEngine() as engine:
        answer = engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 12 plus 30?"}], temperature=0
        )
    text = answer.choices[0].message.content or ""
    if "42" not in text:
        raise SystemExit(f"the bundled model says that 12 plus 30 is {text!r}")
    return f"chat: {text}"


def check_embeddings(directory: Path) -> str:
    """Embed two texts with a random encoder."""
    with MLCEngine(str(write_encoder(directory / "encoder"))) as engine:
        response = engine.embeddings.create(input=["abc", "xyz"])
    sizes = [len(item.embedding) for item in response.data]
    if sizes != [48, 48]:
        raise SystemExit(f"the embeddings have the sizes {sizes}, not 48")
    return "embeddings: 2 of size 48"


def wait_for_status(url: str) -> int:
    """Return the status of a response, once the server listens."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
                status: int = response.status
                return status
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def check_server() -> str:
    """Start the server, ask for its health and an answer, and end it by SIGTERM."""
    command = [sys.executable, "-m", "aiomlc", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            addresses = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in lines)
            url = next((match[0] for match in addresses if match), None)
            if url is None:
                raise SystemExit(f"the server ended with exit code {process.wait()}")
            health = wait_for_status(f"{url}/health")
            body = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 8}
            request = urllib.request.Request(
                f"{url}/v1/chat/completions",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                tokens = json.load(response)["usage"]["completion_tokens"]
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    return f"server: /health {health}, {tokens} tokens, exit code {process.returncode}"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["AIOMLC_HOME"] = str(Path(directory, "home"))
        print(check_environment())
        print(check_chat())
        print(check_embeddings(Path(directory)))
        print(check_server())


if __name__ == "__main__":
    main()
