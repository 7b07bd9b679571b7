"""Tools with conversation templates: described, called and answered in each family's format."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, ModelLoadError
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.tool_format import find_tool_format
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.registry import builtin_conversations, get_conversation_template
from aiomlc.testing import FakeCore, fake_model

pytestmark = pytest.mark.timeout(20)
TIME = {"type": "function", "function": {"name": "get_time"}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"a": []}}}
TIME_JSON = '{"type": "function", "function": {"name": "get_time"}}'
WEATHER_JSON = '{"type": "function", "function": {"name": "get_weather", "parameters": {"a": []}}}'
SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Rain?"}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Rom"}'},
}
CHAT: list[dict[str, Any]] = [
    SYSTEM,
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
]
HERMES_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rom"}}\n</tool_call>'
LLAMA_CALL = '{"name": "get_weather", "parameters": {"city": "Rom"}}'
MINISTRAL_CALL = '[TOOL_CALLS]get_weather[ARGS]{"city": "Rom"}'

# The prompts of the chat above with the two tools, as the documentation of each family shows them.
QWEN = f"""\
<|im_start|>system
Be brief.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{TIME_JSON}
{WEATHER_JSON}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call><|im_end|>
<|im_start|>user
Rain?<|im_end|>
<|im_start|>assistant
{HERMES_CALL}<|im_end|>
<|im_start|>user
<tool_response>
sunny
</tool_response><|im_end|>
<|im_start|>assistant
"""
HERMES = f"""\
<|im_start|>system
You are a function calling AI model. You are provided with function signatures within \
<tools></tools> XML tags. You may call one or more functions to assist with the user query. \
Don't make assumptions about what values to plug into functions. \
Here are the available tools: <tools> {TIME_JSON}
{WEATHER_JSON} </tools> Use the following pydantic model json schema for each tool call you will \
make: {{"properties": {{"name": {{"title": "Name", "type": "string"}}, "arguments": \
{{"title": "Arguments", "type": "object"}}}}, "required": ["name", "arguments"], \
"title": "FunctionCall", "type": "object"}}
For each function call return a json object with function name and arguments within \
<tool_call></tool_call> XML tags as follows:
<tool_call>
{{"name": <function-name>, "arguments": <args-dict>}}
</tool_call><|im_end|>
<|im_start|>system
Be brief.<|im_end|>
<|im_start|>user
Rain?<|im_end|>
<|im_start|>assistant
{HERMES_CALL}<|im_end|>
<|im_start|>tool
<tool_response>
sunny
</tool_response><|im_end|>
<|im_start|>assistant
"""
LLAMA = f"""\
<|start_header_id|>system<|end_header_id|>

Environment: ipython

You have access to the following functions. To call a function, please respond with JSON for a \
function call. Respond in the format {{"name": function name, "parameters": dictionary of \
argument name and its value}}. Do not use variables.

{{
    "type": "function",
    "function": {{
        "name": "get_time"
    }}
}}

{{
    "type": "function",
    "function": {{
        "name": "get_weather",
        "parameters": {{
            "a": []
        }}
    }}
}}

Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>

Rain?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

<|python_tag|>{LLAMA_CALL}<|eot_id|><|start_header_id|>ipython<|end_header_id|>

sunny<|eot_id|><|start_header_id|>assistant<|end_header_id|>

"""
MINISTRAL = (
    "[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT]"
    f"[AVAILABLE_TOOLS][{TIME_JSON}, {WEATHER_JSON}][/AVAILABLE_TOOLS][INST]Rain?[/INST]"
    f"{MINISTRAL_CALL}</s>[TOOL_RESULTS]sunny[/TOOL_RESULTS]"
)
GORILLA_CALL = "<<function>>get_weather(city='Rom')"
GORILLA = (
    f"Be brief.\n### Instruction: <<function>>[{json.dumps(TIME['function'])}, "
    f"{json.dumps(WEATHER['function'])}]\n<<question>>Rain?\n"
    f"### Response: {GORILLA_CALL}<|EOT|>### Instruction: sunny\n### Response: "
)
# By template name: the prompt, and a call as the model generates it.
FAMILIES = {
    "qwen2": (QWEN, HERMES_CALL),
    "qwen3": (QWEN, HERMES_CALL),
    "hermes2_pro_llama3": (HERMES, HERMES_CALL),
    "hermes3_llama-3_1": (HERMES, HERMES_CALL),
    "llama-3_1": (LLAMA, LLAMA_CALL),
    "ministral3": (MINISTRAL, MINISTRAL_CALL),
    "ministral3_reasoning": (MINISTRAL, MINISTRAL_CALL),
    "gorilla-openfunctions-v2": (GORILLA, GORILLA_CALL),
}
# Its prompt describes functions, but its tool-call format is unknown.
UNKNOWN_FORMAT = "gorilla"


@pytest.mark.parametrize("name", FAMILIES)
async def test_tools_are_described_and_called_in_the_familys_format(name: str) -> None:
    template = get_conversation_template(name)
    prompt, reply = FAMILIES[name]
    core = FakeCore([reply])

    async def load(model: object, **_: object) -> LoadedModel:
        tool_format = find_tool_format(template.source)
        return dataclasses.replace(
            fake_model(core, context_window=4096), chat_template=template, tool_format=tool_format
        )

    async with AsyncMLCEngine(loader=load) as engine:
        answer = await engine.chat.completions.create(messages=CHAT, tools=[TIME, WEATHER])

    prefix = template.system_prefix_token_ids or ()
    assert bytes(core.prompts[0][len(prefix) :]).decode() == prompt
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls or []
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Rom"}


@pytest.mark.parametrize("name", FAMILIES)
def test_without_tools_the_prompt_does_not_describe_any(name: str) -> None:
    template = get_conversation_template(name)
    plain = template.model_copy(
        update={"system_template": template.system_template.replace("{function_string}", "")}
    )

    assert template.render([SYSTEM, QUESTION]) == plain.render([SYSTEM, QUESTION])


@pytest.mark.parametrize(
    "name", [name for name in builtin_conversations() if name not in {*FAMILIES, UNKNOWN_FORMAT}]
)
def test_tools_are_rejected_if_the_template_does_not_support_them(name: str) -> None:
    with pytest.raises(BadRequestError, match="does not support tools") as caught:
        get_conversation_template(name).render([QUESTION], tools=[TIME])

    assert caught.value.param == "tools"


def test_a_template_without_a_known_tool_call_format_describes_functions() -> None:
    template = get_conversation_template(UNKNOWN_FORMAT)

    assert template.render([SYSTEM, QUESTION], tools=[TIME]) == (
        f"Be brief. USER: <<question>> Rain? <<function>> [{json.dumps(TIME['function'])}]"
        "\nASSISTANT:"
    )
    assert find_tool_format(template.source) is None


def test_a_placeholder_in_the_system_message_is_not_replaced() -> None:
    system = {"role": "system", "content": "{function_string}"}
    prompt = get_conversation_template("qwen2").render([system, QUESTION], tools=[TIME])

    assert prompt.startswith("<|im_start|>system\n{function_string}\n\n# Tools")
    assert prompt.count(TIME_JSON) == 1


def test_a_tool_prompt_format_must_contain_the_placeholder() -> None:
    fields = get_conversation_template("qwen2").to_json_dict()
    fields["tool_prompt_format"]["template"] = "# Tools"

    with pytest.raises(ModelLoadError, match=r"must contain \{function_string\}") as caught:
        Conversation.from_json_dict(fields)

    assert caught.value.field == "conv_template.tool_prompt_format.template"
