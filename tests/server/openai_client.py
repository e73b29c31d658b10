"""OpenAI's own Python client against leq-server: openai_client.py TOOLS. Skipped without `openai`."""

import json
import sys

from served import Served, check, skip

try:
    import openai
except ImportError:
    skip("the Python package openai is not installed")

MODEL = "storyteller"
ASK = [{"role": "user", "content": "Tell me a story."}]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}}}
TOOL = {"type": "function",
        "function": {"name": "weather", "description": "The weather of a city",
                     "parameters": {"type": "object", "additionalProperties": False,
                                    "required": ["city"],
                                    "properties": {"city": {"type": "string", "maxLength": 12}}}}}


def chats(client):
    whole = client.chat.completions.create(model=MODEL, messages=ASK, seed=1, max_tokens=40)
    text = whole.choices[0].message.content
    check(len(text) > 20 and whole.usage.completion_tokens == 40, "a chat")
    check(whole.choices[0].finish_reason == "length", "why it ended")
    stream = list(client.chat.completions.create(
        model=MODEL, messages=ASK, seed=1, max_tokens=40, stream=True,
        stream_options={"include_usage": True}))
    joined = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    check(joined == text, "a stream says the same")
    check(stream[-1].usage.total_tokens == whole.usage.total_tokens, "usage of a stream")
    parts = [{"role": "user", "content": [{"type": "text", "text": "Tell me a story."}]}]
    again = client.chat.completions.create(model=MODEL, messages=parts, seed=1, max_tokens=40)
    check(again.choices[0].message.content == text, "content in parts")
    several = client.chat.completions.create(model=MODEL, messages=ASK, seed=1, max_tokens=10, n=3)
    check(len({c.message.content for c in several.choices}) > 1, "several choices")
    stopped = client.chat.completions.create(model=MODEL, messages=ASK, seed=1, max_tokens=40,
                                             stop=text[10:14])
    check(stopped.choices[0].message.content == text[:text.index(text[10:14])], "a stop string")


def probabilities(client):
    reply = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=5,
                                           logprobs=True, top_logprobs=3)
    tokens = reply.choices[0].logprobs.content
    check(len(tokens) == 5 and all(len(t.top_logprobs) == 3 for t in tokens), "log probabilities")
    check(all(t.token == t.top_logprobs[0].token for t in tokens), "the most probable at temperature 0")
    check(bytes(sum((t.bytes for t in tokens), [])).decode() == reply.choices[0].message.content,
          "their bytes are the text")


def formats(client):
    for seed in range(3):
        reply = client.chat.completions.create(
            model=MODEL, messages=ASK, seed=seed, max_tokens=200,
            response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}})
        found = json.loads(reply.choices[0].message.content)
        check(set(found) == {"name", "age"} and isinstance(found["age"], int), f"a schema: {found}")
    reply = client.chat.completions.create(model=MODEL, messages=ASK, seed=1, max_tokens=60,
                                           response_format={"type": "json_object"})
    text = reply.choices[0].message.content
    if reply.choices[0].finish_reason == "stop":
        check(isinstance(json.loads(text), dict), "an object")
    else:
        check(text.lstrip().startswith("{"), "an object that was cut")


def tools(client):
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        reply = client.chat.completions.create(model=MODEL, messages=ASK, tools=[TOOL], seed=2, max_tokens=200,
                                               tool_choice=choice, parallel_tool_calls=False)
        [call] = reply.choices[0].message.tool_calls
        check(call.function.name == "weather" and "city" in json.loads(call.function.arguments),
              f"a tool is called: {call.function.arguments}")
        check(reply.choices[0].finish_reason == "tool_calls" and call.id, "and it says so")
    # This model goes on calling until the limit cuts its last call.
    stream = client.chat.completions.create(model=MODEL, messages=ASK, tools=[TOOL], seed=2,
                                            tool_choice="required", max_tokens=200, stream=True)
    called = {}  # [name, id, arguments] by the call's index
    for chunk in stream:
        for part in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            call = called.setdefault(part.index, [part.function.name, part.id, ""])
            call[2] += part.function.arguments or ""
    check(len(called) > 1 and all(name == "weather" for name, *_ in called.values()), "calls in a stream")
    check(len({id for _, id, _ in called.values()}) == len(called), "each call has its id")
    whole = [arguments for *_, arguments in called.values()][:-1]
    check(all("city" in json.loads(arguments) for arguments in whole), f"their arguments: {whole}")


def others(client):
    check([m.id for m in client.models.list()] == [MODEL], "the list of models")
    check(client.models.retrieve(MODEL).owned_by == "leq", "a model")
    text = client.completions.create(model=MODEL, prompt="Once upon", seed=1, max_tokens=6, logprobs=2)
    check(len(text.choices[0].logprobs.tokens) == 6, "a completion")
    streamed = client.completions.create(model=MODEL, prompt="Once upon", seed=1, max_tokens=6, stream=True)
    check("".join(c.choices[0].text for c in streamed) == text.choices[0].text, "a completion's stream")
    numbers = client.embeddings.create(model=MODEL, input=["a cat", "a dog"]).data
    floats = client.embeddings.create(model=MODEL, input=["a cat"], encoding_format="float").data
    check(max(abs(a - b) for a, b in zip(numbers[0].embedding, floats[0].embedding)) < 1e-6,
          "embeddings in both formats")
    check(numbers[0].embedding != numbers[1].embedding, "of different texts")


def responses(client):
    whole = client.responses.create(model=MODEL, input="Tell me a story.", instructions="Be brief.",
                                    max_output_tokens=40, extra_body={"seed": 1})
    text = whole.output_text
    check(len(text) > 20 and whole.usage.output_tokens == 40, "a response")
    check(whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens",
          "why it ended")
    with client.responses.stream(model=MODEL, input="Tell me a story.", instructions="Be brief.",
                                 max_output_tokens=40, extra_body={"seed": 1}) as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    check(kinds[0] == "response.created" and kinds[-1] == "response.incomplete", "a stream's events")
    joined = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    check(joined == text, "it says the same")
    function = {"type": "function", "name": "weather", "strict": False,
                "parameters": TOOL["function"]["parameters"]}
    called = client.responses.create(model=MODEL, input="The weather?", tools=[function],
                                     tool_choice="required", extra_body={"seed": 2})
    call = called.output[0]
    check(call.type == "function_call" and "city" in json.loads(call.arguments), "a function is called")
    parsed = client.responses.create(
        model=MODEL, input="Who?", extra_body={"seed": 2},
        text={"format": {"type": "json_schema", "name": "person", "schema": SCHEMA}})
    check(set(json.loads(parsed.output_text)) == {"name", "age"}, "a schema")
    count = client.responses.input_tokens.count(model=MODEL, input="Tell me a story.", instructions="Be brief.")
    check(count.input_tokens == whole.usage.input_tokens, "input_tokens")
    try:
        client.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
        raise AssertionError("an earlier response was taken")
    except openai.BadRequestError as error:
        check(error.param == "previous_response_id", f"BadRequestError: {error.message}")


def echoed(client):
    reply = client.completions.create(model=MODEL, prompt="Once upon a time", echo=True, logprobs=1,
                                      max_tokens=1, temperature=0).choices[0]
    found = reply.logprobs
    check(found.token_logprobs[0] is None and all(p <= 0 for p in found.token_logprobs[1:]),
          "the prompt's log probabilities")
    check(len(found.tokens) == len(found.top_logprobs) == len(found.text_offset), "as many of each")


def errors(client, url):
    def expect(kind, param, call):
        try:
            call()
        except kind as error:
            check(error.param == param, f"{kind.__name__}: {error.message}")
        else:
            raise AssertionError(f"no {kind.__name__}")

    expect(openai.BadRequestError, "temperature",
           lambda: client.chat.completions.create(model=MODEL, messages=ASK, temperature=-1))
    expect(openai.BadRequestError, "messages",
           lambda: client.chat.completions.create(model=MODEL, messages=[]))
    expect(openai.NotFoundError, None, lambda: client.models.retrieve("other"))
    stranger = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
    expect(openai.AuthenticationError, None, stranger.models.list)


def main():
    with Served(sys.argv[1], "--api-key", "sesame") as served:
        client = openai.OpenAI(base_url=served.url + "/v1", api_key="sesame", max_retries=0)
        chats(client)
        probabilities(client)
        others(client)
        errors(client, served.url)
        formats(client)
        tools(client)
        responses(client)
        echoed(client)


if __name__ == "__main__":
    main()
