#!/usr/bin/env python3
"""What Jinja2 makes of chat templates, with the settings that transformers runs them with.

    oracle.py CONVERSATIONS.json FOLDER...   prints {"FILE": [text or null where it raises, ...]}

The tests compare with it where python3 and jinja2 are there; renderings.json was made with it:

    oracle.py --write renderings.json conversations.json OWN_FOLDER [SHARED_FOLDER]
"""
import datetime
import hashlib
import itertools
import json
import pathlib
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 3, 5, 14, 7, 9)  # a Wednesday


class Generation(Extension):
    """{% generation %}: marks what a model wrote, and prints it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys, default=list)  # lazy lists too, as here

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def plain(message, arguments, nulls, blocks):
    """A message as templates get it: text in one piece, arguments of calls in one form, and where
    nothing else renders no content as an empty one."""
    message = dict(message)
    if nulls == "empty" and message.get("content") is None:
        message["content"] = ""
    if isinstance(message.get("content"), list):
        message["content"] = "\n".join(part["text"] for part in message["content"])
    thoughts, text = message.get("reasoning_content"), message.get("content")
    if blocks and thoughts and isinstance(text, str):  # the template reads both from blocks
        message["content"] = [{"type": "thinking", "thinking": thoughts}]
        message["content"] += [{"type": "text", "text": text}] if text else []
    calls = []
    for call in message.get("tool_calls") or []:
        function = dict(call["function"])
        given = function.get("arguments")
        if arguments == "objects" and isinstance(given, str):
            function["arguments"] = json.loads(given)
        elif arguments == "texts" and isinstance(given, dict):
            function["arguments"] = json.dumps(given, ensure_ascii=False)
        calls.append({name: function if name == "function" else held
                      for name, held in call.items()})
    if calls:
        message["tool_calls"] = calls
    return message


def full(tools):
    """Tools with the members that the API allows to leave out; a list where there are none."""
    whole = []
    for tool in tools or []:
        function = tool.get("function")
        if not isinstance(function, dict):
            return tools
        function = dict(function)
        if function.get("description") is None:
            function["description"] = ""
        if function.get("parameters") is None:
            function["parameters"] = {"type": "object", "properties": {}}
        whole.append({**tool, "function": function})
    return whole


def render(template, conversation, blocks, reasons=None):
    for tools, nulls, arguments in itertools.product(("given", "full"), ("null", "empty"),
                                                     ("objects", "texts")):
        messages = [plain(message, arguments, nulls, blocks)
                    for message in conversation["messages"]]
        variables = {"messages": messages, "documents": None, "tools": conversation.get("tools"),
                     "bos_token": "<s>", "eos_token": "</s>",
                     "add_generation_prompt": conversation.get("add_generation_prompt", True),
                     "enable_thinking": conversation.get("enable_thinking", True)}
        if tools == "full":
            variables["tools"] = full(variables["tools"])
        variables.update(conversation.get("variables", {}))
        try:
            return template.render(**variables)
        except Exception as error:  # whatever it is, the template does not take this conversation
            if reasons is not None:
                reasons.append(error)
    return None


def renderings(folder, conversations):
    env = environment()
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        text = path.read_bytes().decode()
        template = env.from_string(text)
        found[path.name] = [render(template, one, "['thinking']" in text) for one in conversations]
    return found


def mark(text):
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def main(arguments):
    if arguments[0] == "--write":
        conversations = json.loads(pathlib.Path(arguments[2]).read_text())
        out = {"own": renderings(arguments[3], conversations)}
        if len(arguments) > 4:
            shared = renderings(arguments[4], conversations)
            out["shared"] = {name: [mark(t) for t in texts] for name, texts in shared.items()}
        pathlib.Path(arguments[1]).write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
        return
    conversations = json.loads(pathlib.Path(arguments[0]).read_text())
    found = {}
    for folder in arguments[1:]:
        found.update(renderings(folder, conversations))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
