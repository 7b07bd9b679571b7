"""Files of requests in OpenAI's batch format, answered by an engine of this process."""

from __future__ import annotations

__all__ = ("BatchProgress", "BatchSummary", "InvalidLine", "run_batch")

from aiomlc.batch.plan import InvalidLine
from aiomlc.batch.run import BatchProgress, BatchSummary, run_batch
