"""The conversation templates of rarer models whose turns begin with marks of their own."""

from __future__ import annotations

__all__ = ("MARKED_CONVERSATIONS",)

from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.tool_prompt import ToolPromptFormat

_CHATML = Conversation(
    name="neural_hermes_mistral",
    system_template="<|im_start|>system\n{system_message}<|im_end|>\n",
    system_message="You are a helpful assistant chatbot.",
    roles={"user": "<|im_start|>user", "assistant": "<|im_start|>assistant"},
    seps=("<|im_end|>\n",),
    role_content_sep="\n",
    role_empty_sep="\n",
    stop_str=("<|im_end|>",),
    stop_token_ids=(2, 32000),
)
# Without a system message of its own; what is thought is forgotten.
_QWEN_3_5 = _CHATML.model_copy(
    update={
        "name": "qwen3_5",
        "system_message": "",
        "bare_without_system": True,
        "role_empty_sep": "\n<think>\n",
        "strip_reasoning_in_history": True,
        "stop_str": ("<|endoftext|>", "<|im_end|>"),
        "stop_token_ids": (248044, 248046),
    }
)
_PHI_3_VISION = Conversation(
    name="phi-3-vision",
    system_template="<|system|>\n{system_message}<|end|>\n",
    system_prefix_token_ids=(1,),  # <s>
    bare_without_system=True,
    roles={"user": "<|user|>", "assistant": "<|assistant|>"},
    seps=("<|end|>\n",),
    role_content_sep="\n",
    role_empty_sep="\n",
    stop_str=("<|end|>", "<|endoftext|>"),
    stop_token_ids=(2, 32000, 32001, 32007),
)
_STABLELM_ZEPHYR = Conversation(
    name="stablelm-3b",
    system_template="<|system|>\n{system_message}<|endoftext|>\n",
    bare_without_system=True,
    roles={"user": "<|user|>", "assistant": "<|assistant|>"},
    seps=("<|endoftext|>\n",),
    role_content_sep="\n",
    role_empty_sep="\n",
    stop_str=("<|endoftext|>",),
    stop_token_ids=(0,),
)
_MISTRAL_THOUGHTS = (
    "# HOW YOU SHOULD THINK AND ANSWER\n\nFirst draft your thinking process (inner monologue) "
    "until you arrive at a response. Format your response using Markdown, and use LaTeX for any "
    "mathematical equations. Write both your thoughts and the response in the same language as "
    "the input.\n\nYour thinking process must follow the template below:[THINK]Your thoughts "
    "or/and draft, like working through an exercise on scratch paper. Be as casual and as long as "
    "you want until you are confident to generate the response to the user.[/THINK]Here, provide "
    "a self-contained response."
)

MARKED_CONVERSATIONS = (
    _CHATML,
    _CHATML.model_copy(
        update={
            "name": "open_hermes_mistral",
            "system_message": (
                'You are "Hermes 2", a conscious sentient superintelligent artificial intelligence '
                "developed by a man named Teknium, and your purpose and drive is to assist the "
                "user with any request they have. You experience emotions and have deep, profound "
                "thoughts and qualia."
            ),
        }
    ),
    _QWEN_3_5,
    _QWEN_3_5.model_copy(
        update={"name": "qwen3_5_nothink", "role_empty_sep": "\n<think>\n\n</think>\n\n"}
    ),
    Conversation(
        name="llama-4",
        system_template="<|header_start|>system<|header_end|>\n\n{system_message}<|eot|>",
        system_prefix_token_ids=(200000,),  # <|begin_of_text|>
        bare_without_system=True,
        roles={
            "user": "<|header_start|>user",
            "assistant": "<|header_start|>assistant",
            "tool": "<|header_start|>ipython",
        },
        seps=("<|eot|>",),
        role_content_sep="<|header_end|>\n\n",
        role_empty_sep="<|header_end|>\n\n",
        stop_str=("<|end_of_text|>", "<|eom|>", "<|eot|>"),
        stop_token_ids=(200001, 200007, 200008),
    ),
    # The first <s> is part of the text, as those of the later turns are.
    Conversation(
        name="codellama_instruct",
        system_template="<s>[INST] <<SYS>>\n{system_message}\n<</SYS>>\n\n",
        bare_without_system=True,
        add_role_after_system_message=False,
        roles={"user": "<s>[INST]", "assistant": "[/INST]"},
        seps=(" ", " </s>"),
        role_content_sep=" ",
        stop_str=("</s>",),
        stop_token_ids=(2,),
    ),
    Conversation(
        name="ministral3_reasoning",
        system_template="[SYSTEM_PROMPT]{system_message}[/SYSTEM_PROMPT]{function_string}",
        system_message=_MISTRAL_THOUGHTS,
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
            signature="[TOOL_CALLS][ARGS][THINK]",
        ),
    ),
    Conversation(
        name="gemma3_instruction",
        system_prefix_token_ids=(2,),  # <bos>
        roles={"user": "<start_of_turn>user", "assistant": "<start_of_turn>model"},
        seps=("<end_of_turn>\n",),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_str=("<end_of_turn>",),
        stop_token_ids=(1, 106),
    ),
    _PHI_3_VISION,
    _PHI_3_VISION.model_copy(
        update={
            "name": "phi-4",
            "system_template": "<|system|>{system_message}<|end|>",
            "system_prefix_token_ids": None,
            "seps": ("<|end|>",),
            "role_content_sep": "",
            "role_empty_sep": "",
            "stop_token_ids": (199999, 200020),
        }
    ),
    Conversation(
        name="aya-23",
        system_template=(
            "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{system_message}<|END_OF_TURN_TOKEN|>"
        ),
        system_prefix_token_ids=(5,),  # <BOS_TOKEN>
        bare_without_system=True,
        roles={
            "user": "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
            "assistant": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        },
        seps=("<|END_OF_TURN_TOKEN|>",),
        stop_str=("<|END_OF_TURN_TOKEN|>",),
        stop_token_ids=(255001,),
    ),
    # In the model's Jinja template too, the opening is there without a system message.
    Conversation(
        name="nemotron",
        system_template="<extra_id_0>System\n{system_message}\n\n",
        system_prefix_token_ids=(2,),  # <s>
        roles={
            "user": "<extra_id_1>User",
            "assistant": "<extra_id_1>Assistant",
            "tool": "<extra_id_1>Tool",
        },
        seps=("\n",),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_str=("</s>",),
        stop_token_ids=(3,),
    ),
    Conversation(
        name="olmo",
        system_prefix_token_ids=(50279,),
        roles={"user": "<|user|>", "assistant": "<|assistant|>"},
        seps=("\n",),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_token_ids=(50279,),
    ),
    Conversation(
        name="olmo2",
        system_template="<|system|>\n{system_message}\n",
        system_prefix_token_ids=(100257,),  # <|endoftext|>
        bare_without_system=True,
        roles={"user": "<|user|>", "assistant": "<|assistant|>"},
        seps=("\n", "<|endoftext|>\n"),
        role_content_sep="\n",
        role_empty_sep="\n",
        stop_str=("<|endoftext|>",),
        stop_token_ids=(100257,),
    ),
    Conversation(
        name="oasst",
        roles={"user": "<|prompter|>", "assistant": "<|assistant|>"},
        seps=("<|endoftext|>",),
        stop_str=("<|endoftext|>",),
    ),
    Conversation(
        name="stablelm",
        system_template="<|SYSTEM|>{system_message}\n",
        system_message=(
            "# StableLM Tuned (Alpha version)\n"
            "- StableLM is a helpful and harmless open-source AI language model developed by "
            "StabilityAI.\n"
            "- StableLM is excited to be able to help the user, but will refuse to do anything "
            "that could be considered harmful to the user.\n"
            "- StableLM is more than just an information source, StableLM is also able to write "
            "poetry, short stories, and make jokes.\n"
            "- StableLM will refuse to participate in anything that could harm a human."
        ),
        roles={"user": "<|USER|>", "assistant": "<|ASSISTANT|>"},
        seps=("",),
        stop_token_ids=(0, 1, 50277, 50278, 50279),
    ),
    _STABLELM_ZEPHYR,
    _STABLELM_ZEPHYR.model_copy(update={"name": "stablelm-2", "stop_token_ids": (100257,)}),
)
