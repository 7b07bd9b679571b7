"""FastAPI application with endpoints of its own on an engine, and OpenAI's API beside them.

    .venv/bin/pip install fastapi
    .venv/bin/uvicorn examples.fastapi_app:app
    curl localhost:8000/sums -H 'Content-Type: application/json' -d '{"first": 12, "second": 30}'
    curl -N 'localhost:8000/answers?question=Who+are+you?'
    curl localhost:8000/llm/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"messages": [{"role": "user", "content": "Hello"}]}'

It needs the extra `serve` of aiomlc. The lifespan opens the engine, and waits at the end for
running requests. An answer is streamed as server-sent events; a client that disconnects cancels its
request. When run as a program, this file sends some requests to itself, without a socket.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from aiomlc import AiomlcError, AsyncMLCEngine, ChatCompletionStream, RequestError
from aiomlc.serve import create_app

DRAIN_SECONDS = 10


class Sum(BaseModel):
    """The body of a request for a sum."""

    first: int
    second: int


class Answer(BaseModel):
    """A response: the model's answer."""

    answer: str
    tokens: int


class EventStream(StreamingResponse):
    """Response that sends the text of a completion as events, each a JSON string."""

    def __init__(self, chunks: ChatCompletionStream) -> None:
        self._chunks = chunks
        self._events = self._read()
        super().__init__(self._events, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # However the response ends, cancel its request.
        async with self._chunks, aclosing(self._events):
            await super().__call__(scope, receive, send)

    async def _read(self) -> AsyncGenerator[str]:
        try:
            async for chunk in self._chunks:
                for choice in chunk.choices:
                    if choice.delta.content:
                        yield f"data: {json.dumps(choice.delta.content)}\n\n"
        except AiomlcError as error:  # The status has been sent, so this is an event.
            yield f"event: error\ndata: {json.dumps(str(error))}\n\n"
        else:
            yield "event: end\ndata: null\n\n"


def create_site(engine: AsyncMLCEngine) -> FastAPI:
    """Return the application; its lifespan opens and closes the engine."""
    llm = create_app(engine)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine:
            yield
            await llm.drain(DRAIN_SECONDS)

    site = FastAPI(title="An application", lifespan=lifespan)

    @site.post("/sums")
    async def add(body: Sum) -> Answer:
        """Ask for a whole answer."""
        completion = await engine.chat.completions.create(
            messages=[{"role": "user", "content": f"What is {body.first} plus {body.second}?"}],
            temperature=0,
        )
        usage = completion.usage
        return Answer(
            answer=completion.choices[0].message.content or "",
            tokens=usage.completion_tokens if usage else 0,
        )

    @site.get("/answers")
    async def stream_answer(
        question: Annotated[str, Query(min_length=1, max_length=1000)],
    ) -> Response:
        """Stream an answer."""
        return EventStream(
            await engine.chat.completions.create(
                messages=[{"role": "user", "content": question}], temperature=0, stream=True
            )
        )

    @site.exception_handler(AiomlcError)
    async def handle_error(_: Request, error: AiomlcError) -> Response:
        status = 400 if isinstance(error, RequestError) else 503
        return JSONResponse({"detail": str(error)}, status)

    site.mount("/llm", llm)
    return site


app = create_site(AsyncMLCEngine())


def main() -> None:
    with TestClient(app) as client:
        print(client.post("/sums", json={"first": 12, "second": 30}).json()["answer"])

        params = {"question": "What is the capital of France?"}
        with client.stream("GET", "/answers", params=params) as response:
            for line in response.iter_lines():
                print(line)

        messages = [{"role": "user", "content": "What is 7 plus 8?"}]
        body = {"messages": messages, "temperature": 0}
        completion = client.post("/llm/v1/chat/completions", json=body).json()
        print(completion["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main()
