"""Ollama's own Python client against leq-server: ollama_client.py TOOLS. Skipped without `ollama`."""

import json
import sys

from served import Served, check, skip

try:
    import ollama
except ImportError:
    skip("the Python package ollama is not installed")

MODEL = "storyteller"
ASK = [{"role": "user", "content": "Tell me a story."}]
OPTIONS = {"seed": 1, "num_predict": 40, "temperature": 0.7}


def chats(client):
    whole = client.chat(MODEL, ASK, options=OPTIONS)
    check(whole.message.role == "assistant" and len(whole.message.content) > 20, "a chat")
    check(whole.done and whole.done_reason == "length" and whole.eval_count == 40, "why it ended")
    check(whole.prompt_eval_count > 5 and whole.eval_duration > 0, "counts and times")
    pieces = list(client.chat(MODEL + ":latest", ASK, options=OPTIONS, stream=True))
    check(len(pieces) > 10 and "".join(p.message.content for p in pieces) == whole.message.content,
          "a stream says the same, under a name with a tag")
    check([p.done for p in pieces] == [False] * (len(pieces) - 1) + [True] and pieces[-1].eval_count == 40,
          "its last piece has the counts")
    held = client.chat(MODEL, ASK, options=OPTIONS, format={
        "type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False})
    check(json.loads(held.message.content) in ({"n": 1}, {"n": 2}), f"a schema: {held.message.content}")
    stopped = client.chat(MODEL, ASK, options={**OPTIONS, "stop": [whole.message.content[10:14]]})
    check(stopped.done_reason == "stop" and stopped.message.content == whole.message.content[:10], "a stop sequence")


def tools(client):
    def weather(city: str) -> str:
        """The weather of a city.

        Args:
          city: its name
        """
        return "rain in " + city

    reply = client.chat(MODEL, [
        *ASK,
        {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]},
        {"role": "tool", "tool_name": "weather", "content": weather("Oslo")},
        {"role": "user", "content": "And then?", "images": [b"\x89PNG\r\n\x1a\n"]}], options=OPTIONS)
    check(reply.done and reply.eval_count > 0, "a conversation with a call, its result and a picture is answered")


def completions(client):
    whole = client.generate(MODEL, "Once upon a time", raw=True, options=OPTIONS)
    again = client.generate(MODEL, "Once upon a time", raw=True, options=OPTIONS, stream=True)
    check(len(whole.response) > 20 and "".join(p.response for p in again) == whole.response, "a raw prompt")
    chat = client.chat(MODEL, [{"role": "system", "content": "Be brief."}, *ASK], options=OPTIONS)
    asked = client.generate(MODEL, ASK[0]["content"], system="Be brief.", options=OPTIONS)
    check(asked.response == chat.message.content, "a prompt in the model's template is a chat")


def models(client):
    listed = client.list().models
    check([m.model for m in listed] == [MODEL] and listed[0].size > 1e6, "the list of models")
    check(listed[0].details.quantization_level == "int8", f"its details: {listed[0].details}")
    check([m.model for m in client.ps().models] == [MODEL], "models in memory")
    shown = client.show(MODEL)
    check("completion" in shown.capabilities and shown.modelinfo["llama.context_length"] > 500, "what a model is")
    one, two = client.embed(MODEL, ["A cat.", "A dog."]).embeddings
    check(abs(sum(x * x for x in one) - 1) < 1e-5 and one != two, "embeddings")
    check(list(client.embeddings(MODEL, "A cat.").embedding) == list(one), "in the older form")


def errors(client):
    try:
        client.chat(MODEL, ASK, options={"num_predict": -5})
    except ollama.ResponseError as error:
        check(error.status_code == 400 and error.error.startswith("num_predict: "), f"an error: {error.error}")
    else:
        check(False, "a wrong limit is refused")


def main():
    with Served(sys.argv[1], "-c", "1024") as served:
        client = ollama.Client(served.url)
        for part in (chats, tools, completions, models, errors):
            part(client)


if __name__ == "__main__":
    main()
