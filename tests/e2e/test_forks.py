"""A process that is forked while an engine runs cannot use that engine, but can open another."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)

# The child is forked during a generation, while the native threads are running.
PROGRAM = """
import os, sys
from aiomlc import EngineClosedError, MLCEngine

QUESTION = [{"role": "user", "content": "What is 3 plus 5?"}]

def complete(engine):
    completion = engine.chat.completions.create(messages=QUESTION, temperature=0)
    return completion.choices[0].message.content

engine = MLCEngine()
stream = engine.generate("Once", max_tokens=2000, ignore_eos=True)
next(stream)
child = os.fork()
if child == 0:
    CHILD
    sys.exit(0)

assert os.waitpid(child, 0)[1] == 0
stream.close()
assert complete(engine) == "3 + 5 = 8."
engine.terminate()
"""


@pytest.mark.parametrize(
    "child",
    [
        "pass",
        "del engine, stream",
        "stream.close(); engine.terminate()",
        "assert complete(MLCEngine()) == '3 + 5 = 8.'",
        """
    for use in (lambda: complete(engine), lambda: next(stream), engine.statistics):
        try:
            use()
        except EngineClosedError as error:
            assert "parent" in str(error)
        else:
            sys.exit("the engine was usable")
    """,
    ],
    ids=["exit", "drop", "terminate", "open", "use"],
)
def test_forked_child_neither_hangs_nor_ends_the_engine_of_its_parent(child: str) -> None:
    program = PROGRAM.replace("CHILD", child.strip())
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )

    assert (result.returncode, result.stderr) == (0, "")


# A child must not return through the forked event loop: trio, also without an engine, waits for
# threads that the child does not have.
IN_AN_EVENT_LOOP = """
import multiprocessing, os
import anyio
from aiomlc import AsyncMLCEngine

QUESTION = [{"role": "user", "content": "What is 3 plus 5?"}]

async def main():
    async with AsyncMLCEngine() as engine:
        async with engine.generate("Once", max_tokens=2000, ignore_eos=True) as stream:
            await anext(stream)
            CHILD
            await anext(stream)

        completion = await engine.chat.completions.create(messages=QUESTION, temperature=0)
        assert completion.choices[0].message.content == "3 + 5 = 8."

anyio.run(main, backend=BACKEND)
"""
FORK = """
            child = os.fork()
            if child == 0:
                os._exit(0)

            assert os.waitpid(child, 0)[1] == 0
"""
MULTIPROCESSING = """
            child = multiprocessing.get_context("fork").Process(target=print, args=("",))
            child.start()
            child.join()
            assert child.exitcode == 0
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("child", [FORK, MULTIPROCESSING], ids=["os", "multiprocessing"])
def test_child_forked_in_an_event_loop_ends_and_its_parent_serves(child: str, backend: str) -> None:
    program = IN_AN_EVENT_LOOP.replace("CHILD", child.strip()).replace("BACKEND", repr(backend))
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )

    assert (result.returncode, result.stderr) == (0, "")
