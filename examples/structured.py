"""Parse the output into a Pydantic model, whose schema constrains the generation."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, Field

from aiomlc import AsyncMLCEngine


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)


async def main() -> None:
    request = "Extract the name and the age: Mia is 31 years old."
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.parse(
            messages=[{"role": "user", "content": request}],
            response_format=Person,
            temperature=0,
        )

    person = completion.choices[0].message.parsed
    assert person is not None
    print(person.name, "is", person.age)


if __name__ == "__main__":
    asyncio.run(main())
