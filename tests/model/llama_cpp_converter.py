"""llama.cpp's converter as a process, which converts one directory after the other.

`python -m tests.model.llama_cpp_converter SOURCE` reads a JSON list of arguments of
`convert_hf_to_gguf.py` from each line, and answers with the traceback of its failure, or with an
empty string. SOURCE is the directory with the script.
"""

from __future__ import annotations

__all__ = ("Converter", "running_converter")

import json
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, final

_ROOT = Path(__file__).parents[2]
_DROPPED = ("rotary_pct",)  # The converter reads it, but transformers 5 replaces it.


@final
class Converter:
    """A running converter."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def convert(self, directory: Path, path: Path, *options: str) -> str:
        """Write a GGUF file; return the traceback of a failure, or an empty string."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps([str(directory), "--outfile", str(path), *options]) + "\n")
        requests.flush()
        failure: str = json.loads(answers.readline())
        return failure


@contextmanager
def running_converter(source: Path) -> Iterator[Converter]:
    """Run the converter of llama.cpp's source until the scope ends."""
    command = [sys.executable, "-W", "ignore", "-m", __name__, str(source)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=_ROOT) as process:
        yield Converter(process)


def _import_converter(source: Path) -> Any:  # noqa: ANN401 - untyped.
    """Import the script; any tokenizer of its models is byte-level BPE as that of the tiny models,
    which it would not recognize."""
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    import convert_hf_to_gguf as converter  # type: ignore[import-not-found]
    import transformers
    from conversion.base import ModelBase, TextModel  # type: ignore[import-not-found]

    find_class = converter.get_model_class

    def get_model_class(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        model_class = find_class(*args, **kwargs)
        model_class.set_vocab = TextModel._set_vocab_gpt2
        model_class.no_mtp = False  # The script sets it, in the process of one model.
        return model_class

    load_fields = ModelBase.load_hparams

    def load_hparams(directory: Path, is_mistral_format: bool) -> dict[str, Any]:
        fields = json.loads((directory / "config.json").read_text())
        own = {name: fields[name] for name in _DROPPED if name in fields}
        loaded: dict[str, Any] = load_fields(directory, is_mistral_format)
        return loaded | own

    converter.get_model_class = get_model_class
    ModelBase.load_hparams = staticmethod(load_hparams)
    TextModel.get_vocab_base_pre = lambda *_: "gpt-2"
    transformers.AutoTokenizer = transformers.PreTrainedTokenizerFast
    return converter


def _main(source: Path) -> None:
    answers = sys.stdout
    with redirect_stdout(sys.stderr):
        converter = _import_converter(source)
        for line in sys.stdin:
            sys.argv[1:] = json.loads(line)
            failure = ""
            try:
                converter.main()
            except (Exception, SystemExit):  # noqa: BLE001 - any is the answer.
                failure = traceback.format_exc()
            print(json.dumps(failure), file=answers, flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
