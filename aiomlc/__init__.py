"""Run large language models inside a Python program, as async iterators on asyncio and trio.

The public names and the modules that define them are listed in `__init__.pyi`; each is imported
when it is first used, so that `import aiomlc` costs nothing.
"""

import lazy_loader

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_ENGINES = "AsyncMLCEngine, or MLCEngine in code without async"
_CLIENT = "AsyncMLCEngine().openai_client(), or MLCEngine().openai_client()"
# What other libraries call it, and what there is here.
_ELSEWHERE = {
    **dict.fromkeys(("LLM", "AsyncLLM", "AsyncLLMEngine", "Llama", "LLMEngine"), _ENGINES),
    **dict.fromkeys(("Engine", "AsyncEngine", "Client", "AsyncClient"), _ENGINES),
    **dict.fromkeys(("OpenAI", "AsyncOpenAI"), _CLIENT),
    "SamplingParams": "keyword arguments of chat.completions.create, such as temperature=0",
}


def __getattr__(name: str) -> object:
    if name in _ELSEWHERE:
        # Not an AttributeError, in whose place `from aiomlc import` has its own words.
        raise ImportError(f"aiomlc has no {name!r}: use {_ELSEWHERE[name]}", name=__name__)

    return _find(name)
