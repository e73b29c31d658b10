#!/usr/bin/env python3
"""Writes into cases.json what Jinja2 makes of the conversations that a template should be shown.

    oracle.py TEMPLATES     (the folder of the models' templates)

A case has the conversation that an agent sends and the one that the template can show; this script
renders the second one. "{id:X}" in it stands for the nine letters and digits of the id X.
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "jinja"))
import oracle  # noqa: E402

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def short(match):
    """FNV-1a of 64 bits in base 62, lowest digit first."""
    value = 0xCBF29CE484222325
    for byte in match[1].encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    digits = ""
    for _ in range(9):
        digits += LETTERS[value % 62]
        value //= 62
    return digits


def main(folder):
    path = HERE / "cases.json"
    cases = json.loads(path.read_text())
    env = oracle.environment()
    for case in cases:
        shown = json.loads(re.sub(r"\{id:([^}]*)\}", short, json.dumps(case["shown"])))
        text = (pathlib.Path(folder) / case["template"]).read_bytes().decode()
        template, blocks = env.from_string(text), "['thinking']" in text
        case["text"] = oracle.render(template, shown, blocks)
        assert case["text"] is not None, case
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    path.write_text("[\n" + lines + "\n]\n")


main(sys.argv[1])
