"""The built-in conversation templates, checked against complete prompts."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

from __future__ import annotations

import pytest

from aiomlc.runtime.output_formats.reasoning_format import find_reasoning_format
from aiomlc.runtime.templates.registry import builtin_conversations, get_conversation_template

SYSTEM = {"role": "system", "content": "Be brief."}
CHAT = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
)
_TURN = "<|START_OF_TURN_TOKEN|>"
_END = "<|END_OF_TURN_TOKEN|>"
_CHATML_SYSTEM = "<|im_start|>system\nBe brief.<|im_end|>\n"
_CHATML = (
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
    "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
)
# The prompt of the chat above, as the documentation of the model shows it: the system message,
# and all other messages.
PROMPTS = {
    "chatml": (_CHATML_SYSTEM, _CHATML),
    "chatml_nosystem": ("Be brief.", _CHATML),
    "qwen2": (_CHATML_SYSTEM, _CHATML),
    "qwen3": (_CHATML_SYSTEM, _CHATML),
    "hermes2_pro_llama3": (_CHATML_SYSTEM, _CHATML),
    "hermes3_llama-3_1": (_CHATML_SYSTEM, _CHATML),
    "llama-3": (
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>",
        (
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
        ),
    ),
    "llama-2": (
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n",
        "Hi [/INST] Hello. </s><s>[INST] Why? [/INST]",
    ),
    "mistral_default": ("[INST] Be brief.\n\n", "Hi [/INST] Hello.</s>[INST] Why? [/INST]"),
    "ministral3": (
        "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT]",
        "[INST]Hi[/INST]Hello.</s>[INST]Why?[/INST]",
    ),
    "tinyllama_v1_0": (
        "<|system|>\nBe brief.</s>\n",
        "<|user|>\nHi</s>\n<|assistant|>\nHello.</s>\n<|user|>\nWhy?</s>\n<|assistant|>\n",
    ),
    "gemma_instruction": (
        "Be brief.",
        (
            "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
            "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
        ),
    ),
    "phi-3": (
        "<|system|>\nBe brief.<|end|>\n",
        "<|user|>\nHi<|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\nWhy?<|end|>\n<|assistant|>\n",
    ),
    "deepseek_v3": (
        "<｜begin▁of▁sentence｜>Be brief.",
        "<｜User｜>Hi<｜Assistant｜>Hello.<｜end▁of▁sentence｜><｜User｜>Why?<｜Assistant｜>",
    ),
    "deepseek_r1_qwen": (
        "<｜begin▁of▁sentence｜>Be brief.",
        (
            "<｜User｜>Hi<｜Assistant｜>Hello.<｜end▁of▁sentence｜>"
            "<｜User｜>Why?<｜Assistant｜><think>\n"
        ),
    ),
    "vicuna_v1.1": ("Be brief. ", "USER: Hi ASSISTANT: Hello.</s>USER: Why? ASSISTANT:"),
    "LM": ("Be brief.", "HiHello.Why?"),
    "neural_hermes_mistral": (_CHATML_SYSTEM, _CHATML),
    "open_hermes_mistral": (_CHATML_SYSTEM, _CHATML),
    "qwen3_5": (_CHATML_SYSTEM, f"{_CHATML}<think>\n"),
    "qwen3_5_nothink": (_CHATML_SYSTEM, f"{_CHATML}<think>\n\n</think>\n\n"),
    "llama-4": (
        "<|header_start|>system<|header_end|>\n\nBe brief.<|eot|>",
        (
            "<|header_start|>user<|header_end|>\n\nHi<|eot|>"
            "<|header_start|>assistant<|header_end|>\n\nHello.<|eot|>"
            "<|header_start|>user<|header_end|>\n\nWhy?<|eot|>"
            "<|header_start|>assistant<|header_end|>\n\n"
        ),
    ),
    "codellama_instruct": (
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n",
        "Hi [/INST] Hello. </s><s>[INST] Why? [/INST]",
    ),
    "ministral3_reasoning": (
        "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT]",
        "[INST]Hi[/INST]Hello.</s>[INST]Why?[/INST]",
    ),
    "gemma3_instruction": (
        "Be brief.",
        (
            "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
            "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
        ),
    ),
    "phi-3-vision": (
        "<|system|>\nBe brief.<|end|>\n",
        "<|user|>\nHi<|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\nWhy?<|end|>\n<|assistant|>\n",
    ),
    "phi-4": (
        "<|system|>Be brief.<|end|>",
        "<|user|>Hi<|end|><|assistant|>Hello.<|end|><|user|>Why?<|end|><|assistant|>",
    ),
    "aya-23": (
        f"{_TURN}<|SYSTEM_TOKEN|>Be brief.{_END}",
        (
            f"{_TURN}<|USER_TOKEN|>Hi{_END}{_TURN}<|CHATBOT_TOKEN|>Hello.{_END}"
            f"{_TURN}<|USER_TOKEN|>Why?{_END}{_TURN}<|CHATBOT_TOKEN|>"
        ),
    ),
    "nemotron": (
        "<extra_id_0>System\nBe brief.\n\n",
        (
            "<extra_id_1>User\nHi\n<extra_id_1>Assistant\nHello.\n<extra_id_1>User\nWhy?\n"
            "<extra_id_1>Assistant\n"
        ),
    ),
    "olmo": (
        "Be brief.",
        "<|user|>\nHi\n<|assistant|>\nHello.\n<|user|>\nWhy?\n<|assistant|>\n",
    ),
    "olmo2": (
        "<|system|>\nBe brief.\n",
        "<|user|>\nHi\n<|assistant|>\nHello.<|endoftext|>\n<|user|>\nWhy?\n<|assistant|>\n",
    ),
    "oasst": (
        "Be brief.",
        (
            "<|prompter|>Hi<|endoftext|><|assistant|>Hello.<|endoftext|>"
            "<|prompter|>Why?<|endoftext|><|assistant|>"
        ),
    ),
    "stablelm": (
        "<|SYSTEM|>Be brief.\n",
        "<|USER|>Hi<|ASSISTANT|>Hello.<|USER|>Why?<|ASSISTANT|>",
    ),
    "stablelm-3b": (
        "<|system|>\nBe brief.<|endoftext|>\n",
        (
            "<|user|>\nHi<|endoftext|>\n<|assistant|>\nHello.<|endoftext|>\n"
            "<|user|>\nWhy?<|endoftext|>\n<|assistant|>\n"
        ),
    ),
    "deepseek": (
        "Be brief.\n\n",
        "User: Hi\n\nAssistant: Hello.<｜end▁of▁sentence｜>User: Why?\n\nAssistant:",
    ),
    "gpt2": ("Be brief.", "HiHello.Why?"),
    "phi-2": ("Be brief.", "Instruct: Hi\nOutput: Hello.\nInstruct: Why?\nOutput:"),
    "orion": (
        "Be brief.",
        "Human: Hi\n\nAssistant: </s>Hello.</s>Human: Why?\n\nAssistant: </s>",
    ),
    "glm": ("Be brief.", "问: Hi\n\n答: Hello.\n\n问: Why?\n\n答:"),
    "llm-jp": (
        "Be brief.",
        "\n\n### 指示:\nHi\n\n### 応答:\nHello.</s>\n\n### 指示:\nWhy?\n\n### 応答:\n",
    ),
    "llava": ("Be brief. ", "USER: Hi ASSISTANT: Hello. USER: Why? ASSISTANT:"),
    "gorilla": (
        "Be brief. ",
        "USER: <<question>> Hi\nASSISTANT: Hello.</s>USER: <<question>> Why?\nASSISTANT:",
    ),
    "gorilla-openfunctions-v2": (
        "Be brief.\n",
        (
            "### Instruction: <<question>>Hi\n### Response: Hello.<|EOT|>"
            "### Instruction: <<question>>Why?\n### Response: "
        ),
    ),
    "redpajama_chat": ("Be brief.", "<human>: Hi\n<bot>: Hello.\n<human>: Why?\n<bot>:"),
    "rwkv_world": (
        "User: hi\n\nAssistant: Be brief.\n\n",
        "User: Hi\n\nAssistant: Hello.\n\nUser: Why?\n\nAssistant:",
    ),
    "dolly": (
        "Be brief.\n\n",
        (
            "### Instruction:\nHi\n\n### Response:\nHello.\n\n### End\n"
            "### Instruction:\nWhy?\n\n### Response:\n"
        ),
    ),
    "wizardlm_7b": ("Be brief.", "User: Hi###Response: Hello.###User: Why?###Response:"),
    "wizard_coder_or_math": (
        "Be brief.\n\n",
        "### Instruction:\nHi\n\n### Response:\nHello.\n\n### Instruction:\nWhy?\n\n### Response:",
    ),
}
for _name, _same in {
    "llama-3_1": "llama-3",
    "deepseek_r1_llama": "deepseek_r1_qwen",
    "stablelm-2": "stablelm-3b",
    "deepseek_v2": "deepseek",
    "codellama_completion": "gpt2",
    "gpt_bigcode": "gpt2",
}.items():
    PROMPTS[_name] = PROMPTS[_same]
# The start of a prompt without a system message, for templates that omit `system_template` then.
WITHOUT_SYSTEM = {
    "codellama_instruct": "<s>[INST] ",
    **dict.fromkeys(("qwen3_5", "qwen3_5_nothink", "llama-4", "phi-3-vision", "phi-4"), ""),
    **dict.fromkeys(("aya-23", "olmo2", "stablelm-3b", "stablelm-2", "llava"), ""),
    **dict.fromkeys(("deepseek", "deepseek_v2"), ""),
}


@pytest.mark.parametrize("name", builtin_conversations())
def test_a_builtin_template_renders_the_prompt_of_its_model(name: str) -> None:
    system, turns = PROMPTS[name]

    assert get_conversation_template(name).render([SYSTEM, *CHAT]) == system + turns


def test_every_builtin_template_has_an_expected_prompt() -> None:
    assert builtin_conversations().keys() == PROMPTS.keys()
    assert len(PROMPTS) == 54


def test_the_token_prefix_is_not_part_of_the_prompt() -> None:
    prefixes = {
        name: template.system_prefix_token_ids for name, template in builtin_conversations().items()
    }

    assert prefixes["llama-3"] == prefixes["llama-3_1"] == (128000,)
    assert prefixes["llama-2"] == prefixes["mistral_default"] == prefixes["vicuna_v1.1"] == (1,)
    assert prefixes["gemma_instruction"] == (2,)
    assert prefixes["chatml"] is None


@pytest.mark.parametrize("name", WITHOUT_SYSTEM)
def test_a_bare_template_is_omitted_without_a_system_message(name: str) -> None:
    assert get_conversation_template(name).render(CHAT) == WITHOUT_SYSTEM[name] + PROMPTS[name][1]


def test_the_default_system_message_is_used_unless_the_chat_has_an_empty_one() -> None:
    gorilla = get_conversation_template("gorilla")
    empty = {"role": "system", "content": ""}

    assert gorilla.render(CHAT[:1]).startswith("A chat between a curious user")
    assert gorilla.render([empty, CHAT[0]]) == "USER: <<question>> Hi\nASSISTANT:"
    rwkv = get_conversation_template("rwkv_world").render(CHAT[:1])
    assert rwkv.startswith("User: hi\n\nAssistant: Hi. I am your assistant")


def test_a_bare_template_is_kept_if_it_describes_tools() -> None:
    template = get_conversation_template("phi-4").model_copy(
        update={"system_template": "<|system|>{system_message}{function_string}<|end|>"}
    )
    tool = {"type": "function", "function": {"name": "f"}}

    assert template.render(CHAT[:1]).startswith("<|user|>")
    prompt = template.render(CHAT[:1], tools=[tool])
    assert prompt.startswith('<|system|>[{"name": "f"}]<|end|><|user|>')


@pytest.mark.parametrize(
    ("name", "start_marker"),
    [("qwen3_5", "<think>"), ("qwen3_5_nothink", "<think>"), ("ministral3_reasoning", "[THINK]")],
)
def test_the_reasoning_format_of_a_builtin_template_is_found(name: str, start_marker: str) -> None:
    reasoning_format = find_reasoning_format(get_conversation_template(name).source)

    assert reasoning_format is not None
    assert reasoning_format.start_marker == start_marker
