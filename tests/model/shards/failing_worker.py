"""A worker that cannot open its model."""

import sys

from aiomlc.workers.parent import write_message

sys.stderr.write("a last word\n")
sys.stderr.flush()
write_message(error="OSError", message="gone")
sys.exit(1)
