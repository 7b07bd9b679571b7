"""A process that is forked while an engine runs has no part in it, and may open its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)

# The child is forked in the middle of an answer, while the native threads are at work.
PROGRAM = """
import os, sys
from aiomlc import EngineClosedError, MLCEngine

SUM = [{"role": "user", "content": "What is 3 plus 5?"}]

def ask(engine):
    answer = engine.chat.completions.create(messages=SUM, temperature=0)
    return answer.choices[0].message.content

engine = MLCEngine()
stream = engine.generate("Once", max_tokens=2000, ignore_eos=True)
next(stream)
child = os.fork()
if child == 0:
    CHILD
    sys.exit(0)

assert os.waitpid(child, 0)[1] == 0
stream.close()
assert ask(engine) == "3 + 5 = 8."
engine.terminate()
"""


@pytest.mark.parametrize(
    "child",
    [
        "pass",
        "del engine, stream",
        "stream.close(); engine.terminate()",
        "assert ask(MLCEngine()) == '3 + 5 = 8.'",
        """
    for use in (lambda: ask(engine), lambda: next(stream), engine.statistics):
        try:
            use()
        except EngineClosedError as error:
            assert "parent" in str(error)
        else:
            sys.exit("it was used")
    """,
    ],
    ids=["ends", "drops", "terminates", "opens", "uses"],
)
def test_a_child_process_neither_waits_for_its_parents_engine_nor_ends_it(child: str) -> None:
    program = PROGRAM.replace("CHILD", child.strip())
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")
