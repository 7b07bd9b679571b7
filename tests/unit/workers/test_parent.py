"""The end of a subprocess with its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_end_of_a_thread_of_the_parent_does_not_end_the_subprocess(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from aiomlc.workers.parent import end_with_parent\n"
        "end_with_parent(os.getppid(), Path(sys.argv[1]).rmdir)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
    )

    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)

    assert tmp_path.exists()
