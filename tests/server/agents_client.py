"""Official clients hold conversations of agents on chat templates of other models: agents_client.py TOOLS

Three turns with a call, a picture in its result, a developer message in the middle, and thinking. Skipped without
`openai`, `anthropic` or the templates of ../shared (or LEQ_SHARED).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from served import SOURCE, Served, check, skip

try:
    import anthropic
    import openai
except ImportError as error:
    skip(f"a client is not installed: {error}")

FOLDER = pathlib.Path(os.environ.get("LEQ_SHARED", SOURCE.parent / "shared")) / "data/chat/templates"
TEMPLATES = ("Qwen3.5-4B", "mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506",
             "openai-gpt-oss-120b", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use")
CITIES = ["Oslo", "Rome"]
SCHEMA = {"type": "object", "properties": {"city": {"enum": CITIES}}, "required": ["city"],
          "additionalProperties": False}
SYSTEM, ASK, RULE, NEXT = "Be brief.", "How is the weather?", "Answer in one word.", "And tomorrow?"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


class ServedTemplate(Served):
    """The storyteller with another chat template, and with room for it."""

    def __init__(self, tools, template):
        super().__init__(tools, "-c", "32768", "-np", "2")
        self.template = template

    def quantized(self, path, kind):
        folder = path.parent / "storyteller"
        shutil.copytree(SOURCE / "examples/storyteller", folder)
        for name, changes in (("config.json", {"max_position_embeddings": 16384}),
                              ("tokenizer_config.json", {"chat_template": self.template})):
            file = folder / name
            file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
        subprocess.run([self.tools / "leq-quantize", folder, "-o", path, "--type", kind, "--method", "rtn"],
                       check=True, capture_output=True)
        return path


def chats(client):
    tool = {"type": "function", "function": {"name": "weather", "description": "The weather of a city",
                                             "parameters": SCHEMA}}
    common = dict(model="m", tools=[tool], seed=2, extra_body={"thinking_budget_tokens": 8})
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASK}]
    first = client.chat.completions.create(messages=messages, tool_choice="required", parallel_tool_calls=False,
                                           max_tokens=200, **common).choices[0]
    call = first.message.tool_calls[0]
    check(first.finish_reason == "tool_calls" and json.loads(call.function.arguments)["city"] in CITIES,
          f"chat: {call.function.name}({call.function.arguments})")
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": [
        {"type": "text", "text": "rain"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PICTURE}}]},
        {"role": "developer", "content": RULE}]
    chunks = list(client.chat.completions.create(messages=messages, max_tokens=12, stream=True,
                                                 stream_options={"include_usage": True}, **common))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check(chunks[-1].usage.completion_tokens > 0, "its result is answered")
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": NEXT}]
    third = client.chat.completions.create(messages=messages, max_tokens=12, reasoning_effort="low", **common)
    check(third.choices[0].finish_reason in ("stop", "length", "tool_calls"), "and the next question")


def responses(client):
    tools = [{"type": "function", "name": "weather", "description": "The weather of a city", "strict": False,
              "parameters": SCHEMA},
             {"type": "custom", "name": "apply_patch", "description": "Changes files."}]
    common = dict(model="m", instructions=SYSTEM, tools=tools, store=False,
                  extra_body={"seed": 2, "thinking_budget_tokens": 8})
    items = [{"role": "user", "content": ASK}]
    first = client.responses.create(input=items, max_output_tokens=200, parallel_tool_calls=False,
                                    tool_choice={"type": "function", "name": "weather"}, **common)
    call = next(item for item in first.output if item.type == "function_call")
    check(json.loads(call.arguments)["city"] in CITIES, f"responses: {call.name}({call.arguments})")
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": [
        {"type": "input_text", "text": "rain"},
        {"type": "input_image", "image_url": "data:image/png;base64," + PICTURE, "detail": "auto"}]},
        {"role": "developer", "content": RULE}]
    second = client.responses.create(input=items, max_output_tokens=200, parallel_tool_calls=False,
                                     tool_choice={"type": "custom", "name": "apply_patch"}, **common)
    patch = next(item for item in second.output if item.type == "custom_tool_call")
    check(patch.name == "apply_patch", "its result is answered by a custom tool")
    items += [item.model_dump(exclude_none=True) for item in second.output]
    items += [{"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "done"},
              {"role": "user", "content": NEXT}]
    with client.responses.stream(input=items, max_output_tokens=12, reasoning={"effort": "low"}, **common) as stream:
        final = [event for event in stream][-1]
    check(final.type in ("response.completed", "response.incomplete") and final.response.usage.output_tokens > 0,
          "and the next question")


def messages(client):
    tool = {"name": "weather", "description": "The weather of a city", "input_schema": SCHEMA}
    common = dict(model="m", system=[{"type": "text", "text": SYSTEM}], tools=[tool], extra_body={"seed": 2})
    said = [{"role": "user", "content": ASK}]
    first = client.messages.create(messages=said, max_tokens=200, thinking={"type": "disabled"},
                                   tool_choice={"type": "any", "disable_parallel_tool_use": True}, **common)
    call = next(block for block in first.content if block.type == "tool_use")
    check(first.stop_reason == "tool_use" and call.input["city"] in CITIES, f"messages: {call.name}({call.input})")
    said += [{"role": "assistant", "content": first.content},
             {"role": "user", "content": [
                 {"type": "tool_result", "tool_use_id": call.id, "content": [
                     {"type": "text", "text": "rain"},
                     {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}]},
                 {"type": "text", "text": "So?"}]},
             {"role": "system", "content": RULE}]
    with client.messages.stream(messages=said, max_tokens=12, **common) as stream:
        second = stream.get_final_message()
    check(second.usage.output_tokens > 0, "its result is answered")
    said += [{"role": "assistant", "content": second.content or "Rain."}, {"role": "user", "content": NEXT}]
    third = client.messages.create(messages=said, max_tokens=48,
                                   thinking={"type": "enabled", "budget_tokens": 16}, **common)
    check(third.stop_reason in ("end_turn", "max_tokens", "tool_use"), "and the next question, with thinking")


def main():
    files = [FOLDER / (name + ".jinja") for name in TEMPLATES]
    if not all(file.exists() for file in files):
        skip(f"there are no templates in {FOLDER}")
    for file in files:
        print(file.stem)
        with ServedTemplate(sys.argv[1], file.read_text()) as served:
            client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)
            chats(client)
            responses(client)
            messages(anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0))


if __name__ == "__main__":
    main()
