"""Options of the command lines that environment variables set."""

import argparse
import os

from . import errors

_SWITCH = {**dict.fromkeys(("1", "true", "on", "yes"), True), **dict.fromkeys(("0", "false", "off", "no"), False)}


def set_defaults(parser, words):
    """Takes LEQ_ARG_ and an option's long name as its default. argparse converts it by the option's type only, and adds
    words of an option that may be given again to its default: a flag wins only if there is none."""
    flags = {word.partition("=")[0] for word in words}
    for action in parser._actions:
        name = f"LEQ_ARG_{action.dest.upper()}"
        value = os.environ.get(name)
        if value is None or not action.option_strings or action.default is argparse.SUPPRESS:  # the last: --help
            continue
        several = isinstance(action, argparse._AppendAction)
        if several and flags.intersection(action.option_strings):
            continue
        switch = action.nargs == 0
        known = _SWITCH if switch else {one: one for one in action.choices or ()}
        if known and value not in known:
            expected = "1 | 0 (true | false, on | off, yes | no)" if switch else " | ".join(known)
            raise errors.SettingError(f"{name}: expected {expected}, found '{value}'")
        value = known.get(value, value)
        parser.set_defaults(**{action.dest: [value] if several else value})
