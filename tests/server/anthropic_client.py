"""Anthropic's own Python client against leq-server: anthropic_client.py TOOLS. Skipped without `anthropic`."""

import json
import sys

from served import Served, check, skip

try:
    import anthropic
except ImportError:
    skip("the Python package anthropic is not installed")

MODEL = "storyteller"
ASK = [{"role": "user", "content": "Tell me a story."}]
WEATHER = {"name": "weather", "description": "The weather of a city",
           "input_schema": {"type": "object", "additionalProperties": False, "required": ["city"],
                            "properties": {"city": {"enum": ["Oslo", "Rome"]}}}}


def messages(client):
    whole = client.messages.create(model=MODEL, max_tokens=40, messages=ASK, system="Be brief.",
                                   extra_body={"seed": 1})
    text = whole.content[0].text
    check(whole.content[0].type == "text" and len(text) > 20, "a message")
    check(whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 40, "why it ended")
    with client.messages.stream(model=MODEL, max_tokens=40, messages=ASK, system="Be brief.",
                                extra_body={"seed": 1}) as stream:
        joined = "".join(stream.text_stream)
        final = stream.get_final_message()
    check(joined == text, "a stream says the same")
    check(final.content[0].text == text and final.stop_reason == "max_tokens", "its final message")
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Tell me a story.",
                                            "cache_control": {"type": "ephemeral"}}]}]
    again = client.messages.create(model=MODEL, max_tokens=40, messages=blocks, system=[
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        extra_body={"seed": 1})
    check(again.content[0].text == text, "blocks with cache_control")
    count = client.messages.count_tokens(model=MODEL, messages=ASK, system="Be brief.")
    usage = whole.usage
    check(count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, "count_tokens")
    stopped = client.messages.create(model=MODEL, max_tokens=40, messages=ASK, system="Be brief.",
                                     stop_sequences=[text[10:14]], extra_body={"seed": 1})
    check(stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[10:14], "a stop sequence")


def tools(client):
    arguments = dict(model=MODEL, max_tokens=200, messages=ASK, tools=[WEATHER],
                     tool_choice={"type": "tool", "name": "weather"}, extra_body={"seed": 2})
    reply = client.messages.create(**arguments)
    use = reply.content[0]
    check(use.type == "tool_use" and use.input["city"] in ("Oslo", "Rome"), f"a tool is used: {use.input}")
    check(reply.stop_reason == "tool_use", "and it says so")
    with client.messages.stream(**arguments) as stream:
        final = stream.get_final_message()
    check(final.content[0].input == use.input, "a call in a stream")


def errors(client, url):
    try:
        client.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}])
        raise AssertionError("an image was taken")
    except anthropic.BadRequestError as error:
        check("image" in str(error), f"BadRequestError: {error}")
    try:
        anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create(
            model=MODEL, max_tokens=5, messages=ASK)
        raise AssertionError("a wrong key was taken")
    except anthropic.AuthenticationError as error:
        check(error.status_code == 401, "AuthenticationError")


def main():
    with Served(sys.argv[1], "--api-key", "sesame") as served:
        client = anthropic.Anthropic(base_url=served.url, api_key="sesame", max_retries=0)
        messages(client)
        tools(client)
        errors(client, served.url)


if __name__ == "__main__":
    main()
