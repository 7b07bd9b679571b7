"""`PagedRadixTree`, with MLC LLM's interface: sequences of tokens that share their prefixes."""

from __future__ import annotations

__all__ = ("PagedRadixTree",)

from collections.abc import Iterator, Sequence
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.validation.arguments import check_token_ids

_CAPACITY = 65_536  # Tokens.


@final
class _Node:
    """The tokens from one branch of the tree to the next."""

    __slots__ = ("children", "parent", "seq_ids", "tokens")

    def __init__(self, tokens: list[int], parent: _Node | None) -> None:
        self.tokens = tokens
        self.parent = parent
        self.children: dict[int, _Node] = {}  # By their first token.
        self.seq_ids: dict[int, None] = {}  # The sequences that end here, in order.


@final
class PagedRadixTree:
    """A tree of token sequences, which finds those that share the longest prefix with a prompt.

    A prefix that several sequences share is stored once. The prefix cache of the engines is
    another one, in native code; this is for programs that keep their own.
    """

    def __init__(self) -> None:
        self._root = _Node([], None)
        self._ends: dict[int, _Node] = {}  # By sequence.
        self._num_tokens = 0

    def match(self, tokens: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """Return the length of the longest stored prefix of `tokens`, and who has it.

        Returns:
            The length in tokens, and the ids of all sequences that begin with this prefix; without
            a common prefix, 0 and no ids.

        Raises:
            BadRequestError: If `tokens` is not a list of token ids.
        """
        check_token_ids("tokens", tokens)
        node, length, matched = self._descend(self._root, tokens)
        if matched:
            node = node.children[tokens[length]]

        length += matched
        return length, tuple(_sequences_below(node)) if length else ()

    def add(self, seq_id: int) -> None:
        """Add an empty sequence.

        Raises:
            BadRequestError: If there is a sequence of this id.
        """
        self._put(seq_id, self._root)

    def remove(self, seq_id: int) -> None:
        """Remove a sequence.

        Raises:
            BadRequestError: If there is no such sequence.
        """
        node = self._end(seq_id)
        del self._ends[seq_id], node.seq_ids[seq_id]
        self._tidy(node)

    def extend(self, seq_id: int, tokens: Sequence[int]) -> None:
        """Append tokens to a sequence.

        Raises:
            BadRequestError: If there is no such sequence, `tokens` is not a list of token ids, or
                there is no room for them.
        """
        node = self._end(seq_id)
        check_token_ids("tokens", tokens)
        parent, length, matched = self._descend(node, tokens)
        rest = list(tokens[length + matched :])
        if len(rest) > self.free_capacity():
            raise BadRequestError(
                f"tokens: {len(rest)} of them are new, and there is room for "
                f"{self.free_capacity()}: remove sequences",
                param="tokens",
            )

        if matched:
            parent = self._split(parent.children[tokens[length]], matched)

        if rest:
            parent.children[rest[0]] = child = _Node(rest, parent)
            self._num_tokens += len(rest)
            parent = child

        self._move(seq_id, node, parent)

    def rollback(self, seq_id: int, num_tokens: int) -> None:
        """Remove the last tokens of a sequence.

        Raises:
            BadRequestError: If there is no such sequence, or it does not have as many tokens.
        """
        length = self.get_length(seq_id)
        _check_range("num_tokens", num_tokens, 0, length)
        node = self._end(seq_id)
        self._move(seq_id, node, self._node_at(node, length, length - num_tokens))

    def fork(self, seq_id: int, parent_seq_id: int, forked_offset: int) -> None:
        """Add a sequence with the first `forked_offset` tokens of another.

        Raises:
            BadRequestError: If there is a sequence of this id, no sequence `parent_seq_id`, or that
                does not have as many tokens.
        """
        length = self.get_length(parent_seq_id)
        _check_range("forked_offset", forked_offset, 0, length)
        self._check_new(seq_id)
        self._put(seq_id, self._node_at(self._end(parent_seq_id), length, forked_offset))

    def get(self, seq_id: int) -> tuple[int, ...]:
        """Return the tokens of a sequence.

        Raises:
            BadRequestError: If there is no such sequence.
        """
        parts = [node.tokens for node in _path(self._end(seq_id))]
        return tuple(token for part in reversed(parts) for token in part)

    def get_length(self, seq_id: int) -> int:
        """Return the number of tokens of a sequence.

        Raises:
            BadRequestError: If there is no such sequence.
        """
        return sum(len(node.tokens) for node in _path(self._end(seq_id)))

    def free_capacity(self) -> int:
        """Return how many more tokens can be stored, not counting those that are shared."""
        return _CAPACITY - self._num_tokens

    def _end(self, seq_id: int) -> _Node:
        if seq_id not in self._ends:
            raise BadRequestError(f"seq_id: there is no sequence {seq_id!r}", param="seq_id")

        return self._ends[seq_id]

    def _check_new(self, seq_id: int) -> None:
        if seq_id in self._ends:
            raise BadRequestError(f"seq_id: there is a sequence {seq_id!r}", param="seq_id")

    def _put(self, seq_id: int, node: _Node) -> None:
        self._check_new(seq_id)
        self._ends[seq_id] = node
        node.seq_ids[seq_id] = None

    def _move(self, seq_id: int, source: _Node, target: _Node) -> None:
        del source.seq_ids[seq_id]
        target.seq_ids[seq_id] = None
        self._ends[seq_id] = target
        self._tidy(source)

    def _descend(self, node: _Node, tokens: Sequence[int]) -> tuple[_Node, int, int]:
        """Return the last node whose tokens all match, their number, and that of the next node."""
        length = 0
        while length < len(tokens) and (child := node.children.get(tokens[length])) is not None:
            common = _common_length(child.tokens, tokens, length)
            if common < len(child.tokens):
                return node, length, common

            node, length = child, length + common

        return node, length, 0

    def _node_at(self, node: _Node, length: int, offset: int) -> _Node:
        """Return the node that ends after `offset` of the `length` tokens up to `node`."""
        while length - len(node.tokens) >= offset and node.parent is not None:
            length, node = length - len(node.tokens), node.parent

        return node if length == offset else self._split(node, len(node.tokens) - length + offset)

    def _split(self, node: _Node, length: int) -> _Node:
        """Divide a node after `length` tokens; return the new node, with the first of them."""
        parent = node.parent
        assert parent is not None, "the root has no tokens"
        first = _Node(node.tokens[:length], parent)
        node.tokens = node.tokens[length:]
        node.parent = first
        first.children[node.tokens[0]] = node
        parent.children[first.tokens[0]] = first
        return first

    def _tidy(self, node: _Node) -> None:
        """Remove a node without sequences, or join it with its only child."""
        while node.parent is not None and not node.seq_ids and not node.children:
            del node.parent.children[node.tokens[0]]
            self._num_tokens -= len(node.tokens)
            node = node.parent

        if node.parent is not None and not node.seq_ids and len(node.children) == 1:
            (child,) = node.children.values()
            child.tokens = node.tokens + child.tokens
            child.parent = node.parent
            node.parent.children[child.tokens[0]] = child


def _common_length(stored: Sequence[int], tokens: Sequence[int], start: int) -> int:
    length = min(len(stored), len(tokens) - start)
    return next((i for i in range(length) if stored[i] != tokens[start + i]), length)


def _path(node: _Node) -> Iterator[_Node]:
    """Yield a node, its parent and so on."""
    current: _Node | None = node
    while current is not None:
        yield current
        current = current.parent


def _sequences_below(node: _Node) -> Iterator[int]:
    nodes = [node]
    while nodes:
        current = nodes.pop()
        yield from current.seq_ids
        nodes.extend(current.children.values())


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise BadRequestError(
            f"{name}: must be in range [{low}, {high}], got {value!r}", param=name
        )
