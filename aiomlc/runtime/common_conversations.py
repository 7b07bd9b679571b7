"""The conversation templates of common models, after the formats that their makers published."""

# ruff: noqa: RUF001 - some makers' marks look like ASCII.

from __future__ import annotations

__all__ = ("COMMON_CONVERSATIONS",)

from aiomlc.runtime.conversation import Conversation

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
    _CHATML.model_copy(
        update={
            "name": "qwen2",
            "system_message": "You are a helpful assistant.",
            "stop_str": ("<|endoftext|>", "<|im_end|>"),
            "stop_token_ids": (151643, 151645),
        }
    ),
    _LLAMA_3,
    _LLAMA_3.model_copy(
        update={
            "name": "llama-3_1",
            "roles": {**_LLAMA_3.roles, "tool": "<|start_header_id|>ipython"},
            "stop_str": ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
            "stop_token_ids": (128001, 128008, 128009),
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
