#!/usr/bin/env python3
"""Writes tests/chat/harmony_replies.json: replies in gpt-oss's notation and what openai-harmony
reads in them. Needs openai-harmony and its vocabulary (TIKTOKEN_ENCODINGS_BASE)."""

import json
import random
import sys

from openai_harmony import HarmonyEncodingName, Role, load_harmony_encoding

TEXTS = ["Yes.", "I look.\nThen I answer.", "a < b and <|not a mark|> {\"x\": 1}", "Grüße 🌍, 日本語",
         "to=functions.f is a word", "```cpp\nint main() {}\n```", "one\n\ntwo", "<", "{}"]
VALUES = ["Graz", 7, -1.5e3, True, None, [1, [2, {"a": "}"}]], {"b": {"c": "]\"\\"}}, "", "<|x|>",
          "line\nline\ttab", "Ä🌍", "\\\" } {", "[]{}", " blank "]
NAMES = ["f", "get_weather", "a.b-c_1", "search"]


def header(rng, channel, name):
    """A header after <|start|>assistant, in the orders that gpt-oss writes."""
    if name is None:
        return f"<|channel|>{channel}<|message|>"
    to = f"to=functions.{name}"
    return rng.choice([f"<|channel|>commentary {to} <|constrain|>json<|message|>",
                       f"<|channel|>commentary {to}<|message|>",
                       f" {to}<|channel|>commentary json<|message|>",
                       f" {to}<|channel|>commentary <|constrain|>json<|message|>",
                       f"<|channel|>analysis {to} <|constrain|>json<|message|>"])


def reply(rng):
    parts = [("analysis", None, rng.choice(TEXTS)) for _ in range(rng.randrange(4))]
    if rng.random() < 0.4:
        parts.append(("commentary", None, rng.choice(TEXTS)))
    if rng.random() < 0.6:
        keys = rng.sample(["town", "x", "é", "a b", "\"q\"", "}"], rng.randrange(5))
        value = {key: rng.choice(VALUES) for key in keys}
        text = json.dumps(value, ensure_ascii=rng.random() < 0.3, indent=rng.choice([None, None, 2]))
        parts.append(("commentary", rng.choice(NAMES), text))
    else:
        parts.append(("final", None, rng.choice(TEXTS)))
    texts = [header(rng, channel, name) + text for channel, name, text in parts]
    return "<|end|><|start|>assistant".join(texts), "<|call|>" if parts[-1][1] else "<|return|>"


def main():
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    rng = random.Random(1)
    replies = []
    while len(replies) < 120:
        text, end = reply(rng)
        tokens = encoding.encode(text + end, allowed_special="all")
        messages = encoding.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT)
        whole = {"reasoning": [], "content": [], "calls": []}
        for message in messages:
            said = "".join(part.text for part in message.content)
            if message.recipient and message.recipient.startswith("functions."):
                whole["calls"].append([message.recipient.removeprefix("functions."), said])
            else:
                whole["reasoning" if message.channel == "analysis" else "content"].append(said)
        replies.append({"text": text, **whole})
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        rows = ",\n".join(json.dumps(one, ensure_ascii=False) for one in replies)
        out.write("[\n" + rows + "\n]\n")


if __name__ == "__main__":
    main()
