"""Send requests and receive chunks as JSON strings; errors are chunks as well."""

from __future__ import annotations

import json

from aiomlc import JSONFFIEngine


def main() -> None:
    with JSONFFIEngine() as engine:
        for temperature in (0, -1):
            request = {
                "messages": [{"role": "user", "content": "What is 12 plus 30?"}],
                "temperature": temperature,
            }
            for chunks in engine.chat_completion(json.dumps(request)):
                for chunk in json.loads(chunks):
                    for choice in chunk["choices"]:
                        print(choice["delta"].get("content", ""), end="", flush=True)
            print()


if __name__ == "__main__":
    main()
