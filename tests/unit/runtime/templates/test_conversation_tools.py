"""Tools through conversation templates: told, called, answered, in the form of each family."""

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
from aiomlc.runtime.templates.registry import CONVERSATIONS, get_conversation_template
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

# The chat above, with the two tools; the forms are those that the makers' documents show.
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
# By the template's name: the prompt, and a call as the model writes it.
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
# Tells of functions, and its calls have no mark by which they could be found.
UNMARKED = "gorilla"


@pytest.mark.parametrize("name", FAMILIES)
async def test_tools_are_told_and_a_call_is_read_in_the_familys_form(name: str) -> None:
    template = get_conversation_template(name)
    prompt, call = FAMILIES[name]
    core = FakeCore([call])

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
    (made,) = choice.message.tool_calls or []
    assert made.function.name == "get_weather"
    assert json.loads(made.function.arguments) == {"city": "Rom"}


@pytest.mark.parametrize("name", FAMILIES)
def test_without_tools_nothing_is_told_of_any(name: str) -> None:
    template = get_conversation_template(name)
    plain = template.model_copy(
        update={"system_template": template.system_template.replace("{function_string}", "")}
    )

    assert template.render([SYSTEM, QUESTION]) == plain.render([SYSTEM, QUESTION])


@pytest.mark.parametrize(
    "name", [one.name for one in CONVERSATIONS if one.name not in {*FAMILIES, UNMARKED}]
)
def test_tools_are_refused_where_a_model_knows_none(name: str) -> None:
    with pytest.raises(BadRequestError, match="no place for tools") as caught:
        get_conversation_template(name).render([QUESTION], tools=[TIME])

    assert caught.value.param == "tools"


def test_a_template_whose_calls_have_no_mark_tells_of_functions_alone() -> None:
    template = get_conversation_template(UNMARKED)

    assert template.render([SYSTEM, QUESTION], tools=[TIME]) == (
        f"Be brief. USER: <<question>> Rain? <<function>> [{json.dumps(TIME['function'])}]"
        "\nASSISTANT:"
    )
    assert find_tool_format(template.source) is None


def test_a_system_message_is_never_taken_for_the_place_of_tools() -> None:
    system = {"role": "system", "content": "{function_string}"}
    prompt = get_conversation_template("qwen2").render([system, QUESTION], tools=[TIME])

    assert prompt.startswith("<|im_start|>system\n{function_string}\n\n# Tools")
    assert prompt.count(TIME_JSON) == 1


def test_a_form_of_functions_has_a_place_for_them() -> None:
    fields = get_conversation_template("qwen2").to_json_dict()
    fields["tool_prompt_format"]["template"] = "# Tools"

    with pytest.raises(ModelLoadError, match=r"has no \{function_string\}") as caught:
        Conversation.from_json_dict(fields)

    assert caught.value.field == "conv_template.tool_prompt_format.template"
