"""The submission of a request with several choices."""

from __future__ import annotations

__all__ = ("submit_choices",)

from aiomlc.runtime.engine.core_protocol import Core
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.sampling_params import SequenceOptions


def submit_choices(
    core: Core, prompt: Prompt, options: SequenceOptions, num_choices: int
) -> tuple[int, ...]:
    """Submit a sequence for each choice, or none; return their ids.

    Raises:
        RequestError: If the request is rejected.
        EngineError: If the core is closed, dead or overloaded.
    """
    sequence_ids: list[int] = []
    try:
        for choice in range(num_choices):
            sequence_id = core.submit(prompt, options.of_choice(choice))
            sequence_ids.append(sequence_id)
    except BaseException:
        for sequence_id in sequence_ids:
            core.cancel(sequence_id)
        raise

    return tuple(sequence_ids)
