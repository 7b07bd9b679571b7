"""The conversation templates of rarer models whose turns begin with words, or with nothing."""

# ruff: noqa: RUF001 - some makers' marks look like ASCII.

from __future__ import annotations

__all__ = ("WORDED_CONVERSATIONS",)

from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.tool_prompt import ToolPromptFormat

_DEEPSEEK = Conversation(
    name="deepseek",
    system_template="{system_message}\n\n",
    system_prefix_token_ids=(100000,),  # DeepSeek's beginning of a sentence.
    bare_without_system=True,
    roles={"user": "User", "assistant": "Assistant"},
    seps=("\n\n", "<｜end▁of▁sentence｜>"),
    role_content_sep=": ",
    role_empty_sep=":",
    stop_str=("<｜end▁of▁sentence｜>",),
    stop_token_ids=(100001,),
)
_TEXT_ALONE = Conversation(
    name="gpt2",
    roles={"user": "", "assistant": ""},
    seps=("",),
    stop_str=("<|endoftext|>",),
    stop_token_ids=(50256,),
)
_GORILLA = Conversation(
    name="gorilla",
    system_template="{system_message} ",
    system_message=(
        "A chat between a curious user and an artificial intelligence assistant. The assistant "
        "provides helpful, detailed, and polite responses to the user's inquiries."
    ),
    system_prefix_token_ids=(1,),  # <s>
    bare_without_system=True,
    roles={"user": "USER", "assistant": "ASSISTANT", "tool": "USER"},
    role_templates={"user": "<<question>> {user_message}{function_string}"},
    seps=("\n", "</s>"),
    role_content_sep=": ",
    role_empty_sep=":",
    stop_str=("</s>",),
    stop_token_ids=(2,),
    tool_prompt_format=ToolPromptFormat(template=" <<function>> {function_string}"),
)
_INSTRUCTION = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request."
)

WORDED_CONVERSATIONS = (
    _DEEPSEEK,
    _DEEPSEEK.model_copy(update={"name": "deepseek_v2"}),
    _TEXT_ALONE.model_copy(
        update={
            "name": "codellama_completion",
            "system_prefix_token_ids": (1,),  # <s>
            "stop_str": ("</s>",),
            "stop_token_ids": (2,),
        }
    ),
    _TEXT_ALONE,
    _TEXT_ALONE.model_copy(update={"name": "gpt_bigcode", "stop_token_ids": (0,)}),
    Conversation(
        name="phi-2",
        roles={"user": "Instruct", "assistant": "Output"},
        seps=("\n",),
        role_content_sep=": ",
        role_empty_sep=":",
        stop_str=("<|endoftext|>",),
        stop_token_ids=(50256,),
    ),
    Conversation(
        name="orion",
        system_prefix_token_ids=(1,),  # <s>
        roles={"user": "Human: ", "assistant": "Assistant: </s>"},
        seps=("\n\n", "</s>"),
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="glm",
        system_prefix_token_ids=(64790, 64792),  # [gMASK] sop
        roles={"user": "问", "assistant": "答", "tool": "问"},
        seps=("\n\n",),
        role_content_sep=": ",
        role_empty_sep=":",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="llm-jp",
        system_message="以下は、タスクを説明する指示です。要求を適切に満たす応答を書きなさい。",
        system_prefix_token_ids=(1,),  # <s>
        roles={"user": "\n\n### 指示:", "assistant": "\n\n### 応答:"},
        seps=("", "</s>"),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="llava",
        system_template="{system_message} ",
        system_prefix_token_ids=(1,),  # <s>
        bare_without_system=True,
        roles={"user": "USER", "assistant": "ASSISTANT"},
        seps=(" ",),
        role_content_sep=": ",
        role_empty_sep=":",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    _GORILLA,
    _GORILLA.model_copy(
        update={
            "name": "gorilla-openfunctions-v2",
            "system_template": "{system_message}\n",
            "system_message": (
                "You are an AI programming assistant, utilizing the Gorilla LLM model, developed "
                "by Gorilla LLM, and you only answer questions related to computer science. For "
                "politically sensitive questions, security and privacy issues, and other "
                "non-computer science questions, you will refuse to answer."
            ),
            "system_prefix_token_ids": (100000,),  # DeepSeek's beginning of a sentence.
            "roles": {
                "user": "### Instruction",
                "assistant": "### Response",
                "tool": "### Instruction",
            },
            "role_templates": {
                **_GORILLA.role_templates,
                "user": "{function_string}<<question>>{user_message}",
            },
            "seps": ("\n", "<|EOT|>"),
            "role_empty_sep": ": ",
            "stop_str": ("<|EOT|>",),
            "stop_token_ids": (100015,),
            "tool_prompt_format": ToolPromptFormat(template="<<function>>{function_string}\n"),
        }
    ),
    Conversation(
        name="redpajama_chat",
        roles={"user": "<human>", "assistant": "<bot>"},
        seps=("\n",),
        role_content_sep=": ",
        role_empty_sep=":",
        stop_str=("<human>",),
        stop_token_ids=(0,),
    ),
    Conversation(
        name="rwkv_world",
        system_template="User: hi\n\nAssistant: {system_message}\n\n",
        system_message=(
            "Hi. I am your assistant and I will provide expert full response in full details. "
            "Please feel free to ask any question and I will always answer it."
        ),
        roles={"user": "User", "assistant": "Assistant"},
        seps=("\n\n",),
        role_content_sep=": ",
        role_empty_sep=":",
        stop_str=("\n\n",),
        stop_token_ids=(0,),
    ),
    Conversation(
        name="dolly",
        system_template="{system_message}\n\n",
        system_message=_INSTRUCTION,
        bare_without_system=True,
        roles={"user": "### Instruction", "assistant": "### Response"},
        seps=("\n\n", "\n\n### End\n"),
        role_content_sep=":\n",
        role_empty_sep=":\n",
        stop_str=("### End",),
        stop_token_ids=(50256,),
    ),
    Conversation(
        name="wizardlm_7b",
        system_prefix_token_ids=(1,),  # <s>
        roles={"user": "User", "assistant": "Response"},
        seps=("###",),
        role_content_sep=": ",
        role_empty_sep=":",
        stop_str=("###",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="wizard_coder_or_math",
        system_template="{system_message}\n\n",
        system_message=_INSTRUCTION,
        system_prefix_token_ids=(1,),  # <s>
        bare_without_system=True,
        roles={"user": "### Instruction", "assistant": "### Response"},
        seps=("\n\n",),
        role_content_sep=":\n",
        role_empty_sep=":",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
)
