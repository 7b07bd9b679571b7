"""Parse the output into a Pydantic model, whose schema constrains the generation."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from aiomlc import AsyncMLCEngine


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    mood: Literal["happy", "sad"]


async def main() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.parse(
            messages=[{"role": "user", "content": "Mia is 31 years old."}],
            response_format=Person,
            temperature=0,
        )

    person = completion.choices[0].message.parsed
    assert person is not None
    print(person.name, "is", person.age, "and", person.mood)


if __name__ == "__main__":
    asyncio.run(main())
