"""The memory of recurrent states: slots, as the native `RecurrentSlots` divides them."""

from __future__ import annotations

__all__ = ("CHECKPOINT_INTERVAL", "plan_slots", "slot_bytes", "slots_of")

from collections.abc import Sequence

CHECKPOINT_INTERVAL = 64  #: The tokens between two checkpoints at the end of a sequence.

_FLOAT_BYTES = 4
_ALIGNMENT = 16  # Floats.
# Of the memory for sequences. The states of one long sequence may take more.
_SHARE = 0.25


def slot_bytes(state_sizes: Sequence[int]) -> int:
    """Return the bytes of the states of all layers, which have `state_sizes` floats each.

    A convolution of one token has none, and is recurrent all the same.
    """
    floats = sum(max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT for size in state_sizes)
    return floats * _FLOAT_BYTES


def slots_of(num_tokens: int) -> int:
    """Return the slots that a sequence of `num_tokens` tokens may hold: its state, that before the
    last drafts, a checkpoint for each power of two, and two that are kept for forks."""
    multiples = num_tokens // CHECKPOINT_INTERVAL
    return 2 + multiples.bit_length() + min(2, multiples)


def plan_slots(nbytes: int, rows: int, context_window: int, memory_bytes: int) -> int:
    """Return the number of slots of an engine; 0 for a model without recurrent layers.

    Args:
        nbytes: Bytes of a slot.
        rows: Running sequences; the prefix cache may hold as many.
        context_window: Tokens of one sequence.
        memory_bytes: The memory for slots and the KV cache.
    """
    if nbytes == 0:
        return 0

    longest = slots_of(context_window)
    return max(longest, min(2 * rows * longest, int(_SHARE * memory_bytes) // nbytes))
