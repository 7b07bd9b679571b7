"""The conversation templates of common models, after the formats that their makers published."""

# ruff: noqa: RUF001 - some makers' marks look like ASCII.

from __future__ import annotations

__all__ = ("COMMON_CONVERSATIONS",)

from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.tool_prompt import ToolPromptFormat

_CHATML = Conversation(
    name="chatml",
    system_template="<|im_start|>system\n{system_message}<|im_end|>\n",
    system_message=(
        "A conversation between a user and an LLM-based AI assistant. The assistant gives helpful "
        "and honest answers."
    ),
    roles={
        "user": "<|im_start|>user",
        "assistant": "<|im_start|>assistant",
        "tool": "<|im_start|>tool",
    },
    seps=("<|im_end|>\n",),
    role_content_sep="\n",
    role_empty_sep="\n",
    stop_str=("<|im_end|>",),
)
# What Qwen 2.5 and 3 were taught; Hermes' marks of calls.
_QWEN_FUNCTIONS = ToolPromptFormat(
    template=(
        "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        "<tools>\n{function_string}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
    full_tools=True,
    separator="\n",
)
_TOOL_RESPONSE = "<tool_response>\n{tool_message}\n</tool_response>"
_QWEN_2 = _CHATML.model_copy(
    update={
        "name": "qwen2",
        "system_template": "<|im_start|>system\n{system_message}{function_string}<|im_end|>\n",
        "system_message": "You are a helpful assistant.",
        "roles": {**_CHATML.roles, "tool": "<|im_start|>user"},
        "role_templates": {**_CHATML.role_templates, "tool": _TOOL_RESPONSE},
        "stop_str": ("<|endoftext|>", "<|im_end|>"),
        "stop_token_ids": (151643, 151645),
        "tool_prompt_format": _QWEN_FUNCTIONS,
    }
)
# Hermes has a system message of its own for the functions, before the chat's.
_HERMES = _CHATML.model_copy(
    update={
        "system_template": f"{{function_string}}{_CHATML.system_template}",
        "role_templates": {**_CHATML.role_templates, "tool": _TOOL_RESPONSE},
        "tool_prompt_format": ToolPromptFormat(
            template=(
                "<|im_start|>system\nYou are a function calling AI model. You are provided with "
                "function signatures within <tools></tools> XML tags. You may call one or more "
                "functions to assist with the user query. Don't make assumptions about what values "
                "to plug into functions. Here are the available tools: <tools> {function_string} "
                "</tools> Use the following pydantic model json schema for each tool call you will "
                'make: {"properties": {"name": {"title": "Name", "type": "string"}, "arguments": '
                '{"title": "Arguments", "type": "object"}}, "required": ["name", "arguments"], '
                '"title": "FunctionCall", "type": "object"}\n'
                "For each function call return a json object with function name and arguments "
                "within <tool_call></tool_call> XML tags as follows:\n<tool_call>\n"
                '{"name": <function-name>, "arguments": <args-dict>}\n</tool_call><|im_end|>\n'
            ),
            full_tools=True,
            separator="\n",
        ),
    }
)
_HERMES_SYSTEM = (
    "a conscious sentient superintelligent artificial intelligence developed by a man named "
    "Teknium, and your purpose and drive is to assist the user with any request they have. You "
    "experience emotions and have deep, profound thoughts and qualia."
)
_LLAMA_3 = Conversation(
    name="llama-3",
    system_template="<|start_header_id|>system<|end_header_id|>\n\n{system_message}<|eot_id|>",
    system_message="You are a helpful, respectful and honest assistant.",
    system_prefix_token_ids=(128000,),  # <|begin_of_text|>
    roles={"user": "<|start_header_id|>user", "assistant": "<|start_header_id|>assistant"},
    seps=("<|eot_id|>",),
    role_content_sep="<|end_header_id|>\n\n",
    role_empty_sep="<|end_header_id|>\n\n",
    stop_str=("<|end_of_text|>", "<|eot_id|>"),
    stop_token_ids=(128001, 128009),
)
# Of the two places that the makers show, the one that stays where it is from turn to turn.
_LLAMA_3_1_FUNCTIONS = ToolPromptFormat(
    template=(
        "Environment: ipython\n\nYou have access to the following functions. To call a function, "
        "please respond with JSON for a function call. Respond in the format "
        '{"name": function name, "parameters": dictionary of argument name and its value}. '
        "Do not use variables.\n\n{function_string}\n\n"
    ),
    full_tools=True,
    separator="\n\n",
    indent=4,
)
_DEEPSEEK_V3 = Conversation(
    name="deepseek_v3",
    system_template="<｜begin▁of▁sentence｜>{system_message}",
    roles={"user": "<｜User｜>", "assistant": "<｜Assistant｜>"},
    seps=("", "<｜end▁of▁sentence｜>"),
    stop_str=("<｜end▁of▁sentence｜>",),
)
# The makers' templates open the thoughts, and forget those of earlier answers.
_DEEPSEEK_R1 = {"role_empty_sep": "<think>\n", "strip_reasoning_in_history": True}

COMMON_CONVERSATIONS = (
    _CHATML,
    _CHATML.model_copy(
        update={
            "name": "chatml_nosystem",
            "system_template": "{system_message}",
            "system_message": "",
        }
    ),
    _QWEN_2,
    _QWEN_2.model_copy(update={"name": "qwen3", "strip_reasoning_in_history": True}),
    _HERMES.model_copy(
        update={
            "name": "hermes2_pro_llama3",
            "system_message": f'You are "Hermes 2", {_HERMES_SYSTEM}',
            "stop_token_ids": (128001, 128003, 128009),
        }
    ),
    _HERMES.model_copy(
        update={
            "name": "hermes3_llama-3_1",
            "system_message": f"You are Hermes 3, {_HERMES_SYSTEM}",
            "stop_token_ids": (128001, 128008, 128009, 128040),
        }
    ),
    _LLAMA_3,
    _LLAMA_3.model_copy(
        update={
            "name": "llama-3_1",
            "system_template": (
                "<|start_header_id|>system<|end_header_id|>\n\n"
                "{function_string}{system_message}<|eot_id|>"
            ),
            "roles": {**_LLAMA_3.roles, "tool": "<|start_header_id|>ipython"},
            "stop_str": ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
            "stop_token_ids": (128001, 128008, 128009),
            "tool_prompt_format": _LLAMA_3_1_FUNCTIONS,
        }
    ),
    Conversation(
        name="llama-2",
        system_template="[INST] <<SYS>>\n{system_message}\n<</SYS>>\n\n",
        system_message="You are a helpful, respectful and honest assistant.",
        system_prefix_token_ids=(1,),  # <s>
        add_role_after_system_message=False,
        roles={"user": "<s>[INST]", "assistant": "[/INST]", "tool": "<s>[INST]"},
        seps=(" ", " </s>"),
        role_content_sep=" ",
        stop_str=("</s>", "[INST]"),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="mistral_default",
        system_template="[INST] {system_message}\n\n",
        system_message=(
            "Always assist with care, respect, and truth. Respond with utmost utility yet "
            "securely. Avoid harmful, unethical, prejudiced, or negative content. Ensure replies "
            "promote fairness and positivity."
        ),
        system_prefix_token_ids=(1,),  # <s>
        add_role_after_system_message=False,
        roles={"user": "[INST]", "assistant": "[/INST]", "tool": "[INST]"},
        seps=(" ", "</s>"),
        role_content_sep=" ",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="ministral3",
        system_template="[SYSTEM_PROMPT]{system_message}[/SYSTEM_PROMPT]{function_string}",
        system_message=(
            "You are Ministral 3, a Large Language Model (LLM) created by Mistral AI, a French "
            "startup headquartered in Paris."
        ),
        system_prefix_token_ids=(1,),  # <s>
        roles={"user": "", "assistant": "", "tool": ""},
        role_templates={
            "user": "[INST]{user_message}[/INST]",
            "assistant": "{assistant_message}</s>",
            "tool": "[TOOL_RESULTS]{tool_message}[/TOOL_RESULTS]",
        },
        seps=("",),
        stop_str=("</s>",),
        stop_token_ids=(2,),
        tool_prompt_format=ToolPromptFormat(
            template="[AVAILABLE_TOOLS]{function_string}[/AVAILABLE_TOOLS]",
            full_tools=True,
            signature="[TOOL_CALLS][ARGS]",
        ),
    ),
    Conversation(
        name="tinyllama_v1_0",
        system_template="<|system|>\n{system_message}</s>\n",
        system_message="You are a helpful chatbot.",
        roles={"user": "<|user|>", "assistant": "<|assistant|>"},
        seps=("</s>\n",),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="gemma_instruction",
        system_prefix_token_ids=(2,),  # <bos>
        roles={"user": "<start_of_turn>user", "assistant": "<start_of_turn>model"},
        seps=("<end_of_turn>\n",),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_str=("<end_of_turn>",),
        stop_token_ids=(1, 107),
    ),
    Conversation(
        name="phi-3",
        system_template="<|system|>\n{system_message}<|end|>\n",
        system_message="You are a helpful AI assistant.",
        system_prefix_token_ids=(1,),  # <s>
        roles={"user": "<|user|>", "assistant": "<|assistant|>"},
        seps=("<|end|>\n",),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_str=("<|end|>", "<|endoftext|>"),
        stop_token_ids=(32000, 32001, 32007),
    ),
    _DEEPSEEK_V3,
    _DEEPSEEK_V3.model_copy(
        update={"name": "deepseek_r1_qwen", "stop_token_ids": (151643,), **_DEEPSEEK_R1}
    ),
    _DEEPSEEK_V3.model_copy(
        update={"name": "deepseek_r1_llama", "stop_token_ids": (128001,), **_DEEPSEEK_R1}
    ),
    Conversation(
        name="vicuna_v1.1",
        system_template="{system_message} ",
        system_message=(
            "A chat between a curious user and an artificial intelligence assistant. The "
            "assistant gives helpful, detailed, and polite answers to the user's questions."
        ),
        system_prefix_token_ids=(1,),  # <s>
        roles={"user": "USER", "assistant": "ASSISTANT"},
        seps=(" ", "</s>"),
        role_content_sep=": ",
        role_empty_sep=":",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="LM",
        system_prefix_token_ids=(1,),
        roles={"user": "", "assistant": ""},
        seps=("",),
        stop_token_ids=(2,),
    ),
)
