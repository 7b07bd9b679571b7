"""Chat bot for many channels, as for Discord, Matrix or IRC, without a package for any of them.

    .venv/bin/python examples/bot.py

Messages arrive at any time. Every channel has a conversation of its own, whose messages are
answered one after the other, while the engine batches the answers of all channels. A channel to
which the bot can write only slowly delays no other. Leaving the scope of the bot answers what has
arrived, for at most some seconds; `unanswered` are the messages that were cancelled then.

`main` plays the network: its channel `#slow` does not take an answer before all others have theirs.
To connect a real one, call `bot.receive` in its handler of messages, and let `send` write to it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from aiomlc import AiomlcError, AsyncMLCEngine, PromptTooLongError

logger = logging.getLogger(__name__)

MAX_WAITING = 8
"""Messages of a channel that may wait; more are refused."""

MAX_MESSAGES = 20
"""Messages of a conversation that the model sees, answers included."""

Send = Callable[[str, str], Awaitable[None]]
"""Writes to a channel: its name, a text."""


@dataclass
class Channel:
    """A conversation, and the messages that are not answered yet."""

    name: str
    conversation: list[dict[str, Any]] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)
    is_answering: bool = False


class Bot:
    """Answers the messages of many channels; an async context manager."""

    def __init__(self, engine: AsyncMLCEngine, send: Send, *, grace_seconds: float = 30) -> None:
        self._engine = engine
        self._send = send
        self._grace_seconds = grace_seconds
        self._channels: dict[str, Channel] = {}
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        self._tasks = await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._tasks = None  # From now on, messages are refused.
        self._group.cancel_scope.deadline = anyio.current_time() + self._grace_seconds
        return await self._group.__aexit__(kind, error, traceback)

    @property
    def unanswered(self) -> list[tuple[str, str]]:
        """The messages that wait for an answer: channel and text."""
        return [(name, text) for name, c in self._channels.items() for text in c.waiting]

    def receive(self, channel_name: str, text: str) -> bool:
        """Take a message and return at once; False if the bot is closing or the channel is full.

        Call it on the event loop; from a thread, by `engine.portal.call`.
        """
        channel = self._channels.setdefault(channel_name, Channel(channel_name))
        if self._tasks is None or len(channel.waiting) >= MAX_WAITING:
            return False
        channel.waiting.append(text)
        if not channel.is_answering:
            channel.is_answering = True
            self._tasks.start_soon(self._answer_waiting, channel)
        return True

    async def _answer_waiting(self, channel: Channel) -> None:
        """Answer the messages of a channel in their order: a task while there are any."""
        try:
            while channel.waiting:
                try:
                    await self._send(channel.name, await self._answer(channel, channel.waiting[0]))
                except Exception:  # The network's; other channels go on.
                    logger.exception("an answer could not be sent to %s", channel.name)
                channel.waiting.popleft()
        finally:
            channel.is_answering = False

    async def _answer(self, channel: Channel, text: str) -> str:
        """Return the answer to a message, or what went wrong."""
        if text == "!forget":
            channel.conversation.clear()
            return "I have forgotten our conversation."

        while True:
            messages = [*channel.conversation, {"role": "user", "content": text}]
            try:
                completion = await self._engine.chat.completions.create(
                    messages=messages, temperature=0, max_tokens=200, timeout=60
                )
                break
            except AiomlcError as error:
                if not (isinstance(error, PromptTooLongError) and channel.conversation):
                    return f"I cannot answer: {error}"
                del channel.conversation[:2]  # The oldest question and its answer.

        answer = completion.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": answer})
        channel.conversation = messages[-MAX_MESSAGES:]
        return answer


async def main() -> None:
    messages = [
        ("#slow", "What is 1 plus 1?"),
        *((f"#sums-{number}", f"What is {number} plus 9?") for number in range(1, 9)),
        ("#names", "My name is Ada."),
        ("#names", "What is my name?"),
    ]
    others = len(messages) - 1
    others_are_answered = anyio.Event()

    async def send(channel: str, text: str) -> None:
        nonlocal others
        if channel == "#slow":
            await others_are_answered.wait()
        print(channel, text)
        if channel != "#slow":
            others -= 1
        if not others:
            others_are_answered.set()

    async with AsyncMLCEngine() as engine, Bot(engine, send) as bot:
        for channel, text in messages:
            bot.receive(channel, text)
            await anyio.sleep(0.01)
    print("closed")


if __name__ == "__main__":
    anyio.run(main)
