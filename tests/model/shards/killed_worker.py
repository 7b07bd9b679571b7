"""A worker that is killed while it opens its model."""

import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
