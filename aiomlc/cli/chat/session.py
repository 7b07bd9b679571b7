"""The chat session of the `chat` command: a conversation and its running response."""

from __future__ import annotations

__all__ = ("ChatSession",)

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from anyio import CancelScope, sleep, to_thread

from aiomlc.cli.chat.context_budget import ContextBudget
from aiomlc.cli.chat.conversation import Conversation, Message, Turn, user_message
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.cli.terminal.figures import ResponseFigures, count
from aiomlc.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from aiomlc.api.engines.async_engine import AsyncMLCEngine
    from aiomlc.api.protocol.chat import ChatCompletionChunk
    from aiomlc.runtime.engine.core_protocol import CoreStatistics

# The prefill is shown only if it takes longer, to avoid flicker.
_STATUS_DELAY_SECONDS = 1.0
_STATUS_TICK_SECONDS = 0.1


@final
class ChatSession:
    """A multi-turn chat with one engine, which generates one response at a time.

    Args:
        engine: The engine, which is open.
        screen: Shows the answers.
        system: The system message, if any.
        options: Fields of every request.
    """

    def __init__(
        self,
        engine: AsyncMLCEngine,
        screen: Screen,
        *,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._engine = engine
        self._screen = screen
        self._cancel_scope: CancelScope | None = None
        self._before_prefill: CoreStatistics | None = None  # Until the first text of a response.
        self._budget = ContextBudget(engine.max_input_sequence_length)
        self.options: dict[str, Any] = dict(options or {})
        self.conversation: Conversation = Conversation(system)
        self.images: list[str] = []  #: Sent with the next question; `data:` URLs.

    @property
    def context_window(self) -> int:
        """The maximum number of tokens of the history, the question and its answer together."""
        return self._budget.window

    def used_tokens(self) -> int:
        """Return how much of the context window the conversation fills, as an estimate."""
        turns = [f"{turn.prompt}\n{turn.answer}" for turn in self.conversation.visible_turns]
        sizes = self._count_tokens([self.conversation.system or "", *turns])
        return self._budget.used_tokens(sizes[0], sizes[1:])

    async def show_prefill(self) -> None:
        """Show how much of a long prompt has been computed, until cancelled."""
        await sleep(_STATUS_DELAY_SECONDS)
        while True:
            before = self._before_prefill
            if before is not None:
                now = self._engine.statistics()
                done = now.prefill_tokens - before.prefill_tokens
                done += now.cached_tokens - before.cached_tokens
                total = max(done, self._budget.prompt_tokens)
                self._screen.show_status(f"reading the prompt, {done:,} of about {total:,} tokens")
            await sleep(_STATUS_TICK_SECONDS)

    def stop(self) -> None:
        """Stop the running response; its text so far stays in the conversation."""
        if self._cancel_scope is not None:
            self._cancel_scope.cancel()

    async def answer(self, prompt: str) -> ResponseFigures:
        """Generate the answer to a prompt with `images`, and add all to the conversation.

        Nothing is added if the response is stopped before its first text. The next question has
        no images in any case.

        Raises:
            RequestError: If the prompt or an option is invalid.
            EngineError: If the engine failed.
        """
        response = _Response(self._screen)
        images, self.images = tuple(self.images), []
        try:
            with CancelScope() as self._cancel_scope:
                forgotten = await self._turns_to_forget(prompt)
                messages = self.conversation.messages_without(forgotten)
                message = user_message(prompt, images)
                await self._stream([*messages, message], response, forgotten)
        finally:
            self._cancel_scope = self._before_prefill = None
            self._screen.end_answer()

        figures = response.figures
        if figures.prompt_tokens:
            self._budget.learn(figures.prompt_tokens)
        else:  # Stopped before the figures, which follow the last text.
            figures = replace(figures, finish_reason=None)
        if response.deltas:
            self.conversation.turns.append(Turn(prompt, "".join(response.deltas), images))
        total = figures.prompt_tokens + figures.completion_tokens
        return replace(figures, fills_context=total >= self.context_window)

    async def answer_again(self) -> ResponseFigures:
        """Generate another answer to the last question, in place of the first one.

        Raises:
            CommandError: If there is no question yet.
            RequestError: If an option is invalid.
            EngineError: If the engine failed.
        """
        if not self.conversation.turns:
            raise CommandError("there is no answer to generate again")

        last = self.conversation.remove_last()
        num_turns = len(self.conversation.turns)
        waiting, self.images = self.images, list(last.images)
        try:
            return await self.answer(last.prompt)
        finally:
            self.images = waiting
            if len(self.conversation.turns) == num_turns:
                self.conversation.turns.append(last)

    async def _turns_to_forget(self, prompt: str) -> int:
        """Return how many of the oldest turns leave too little room for the answer."""
        question = f"{self.conversation.system or ''}\n{prompt}"
        turns = [f"{turn.prompt}\n{turn.answer}" for turn in self.conversation.visible_turns]
        sizes = await to_thread.run_sync(
            self._count_tokens, [question, *turns], abandon_on_cancel=True
        )
        return self._budget.turns_to_forget(sizes[0], sizes[1:])

    def _forget(self, number: int) -> None:
        if number:
            self.conversation.forget(number)
            oldest = "question" if number == 1 else count(number, "question")
            self._screen.note(
                f"[the context of {count(self.context_window, 'token')} is full: "
                f"the model forgets the oldest {oldest}]"
            )

    def _count_tokens(self, texts: list[str]) -> list[int]:
        encode = self._engine.tokenizer.encode
        return [len(encode(text)) for text in texts]

    async def _stream(self, messages: list[Message], response: _Response, forgotten: int) -> None:
        # Read before the request, because a small model may finish before `create` returns.
        before = self._before_prefill = self._engine.statistics()
        stream = await self._engine.chat.completions.create(
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            **self.options,
        )
        self._forget(forgotten)  # Not before, as the question may be rejected.
        async with stream:
            async for chunk in stream:
                response.add(chunk)
                if response.has_begun:
                    self._before_prefill = None

        after = self._engine.statistics()
        response.figures = replace(
            response.figures,
            decode_tokens=after.decode_tokens - before.decode_tokens,
            decode_seconds=after.decode_seconds - before.decode_seconds,
        )


class _Response:
    """The text and the figures of one stream, which is shown as it comes."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._start = time.perf_counter()
        self.deltas: list[str] = []
        self.figures = ResponseFigures()

    @property
    def has_begun(self) -> bool:
        """Whether there was a first token of text or reasoning."""
        return self.figures.first_token_seconds > 0

    def add(self, chunk: ChatCompletionChunk) -> None:
        for choice in chunk.choices:
            if reasoning := choice.delta.reasoning_content:
                self._note_first_token()
                self._screen.write_reasoning(reasoning)
            if text := choice.delta.content:
                self._note_first_token()
                self.deltas.append(text)
                self._screen.write_answer(text)
            if choice.finish_reason is not None:
                self.figures = replace(self.figures, finish_reason=choice.finish_reason)

        if chunk.usage is not None:
            self.figures = replace(
                self.figures,
                prompt_tokens=chunk.usage.prompt_tokens,
                completion_tokens=chunk.usage.completion_tokens,
            )

    def _note_first_token(self) -> None:
        if self.figures.first_token_seconds == 0.0:
            seconds = time.perf_counter() - self._start
            self.figures = replace(self.figures, first_token_seconds=seconds)
