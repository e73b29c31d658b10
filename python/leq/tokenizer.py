"""A model's tokenizer and chat template."""

import json
import os
from collections.abc import Mapping, Set

from . import errors

_PLAIN, _NO_BOS = 1, 2
TEXTS = (str, bytes, bytearray, memoryview)


def text_bytes(text, name="text"):
    """UTF-8 of a str; bytes as they are."""
    if not isinstance(text, TEXTS):
        raise errors.about(errors.WrongTypeError, name, f": expected a text, found {text!r}")
    try:
        return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError as wrong:
        raise errors.about(errors.InputError, name, f": {text[wrong.start]!r} at {wrong.start} is no character") from None


def path_bytes(path):
    """A path as the system has it."""
    try:
        found = os.fsencode(path)
    except TypeError:
        raise errors.about(errors.WrongTypeError, "path", f": expected the name of a file, found {path!r}") from None
    except UnicodeEncodeError:
        raise errors.about(errors.InputError, "path", f" {path!r}: not the name of a file") from None
    if b"\0" in found:
        raise errors.about(errors.InputError, "path", f" {path!r}: a name has no zero byte")
    return found


def token_list(tokens, name="prompt"):
    """Ids as a list of ints."""
    try:
        if isinstance(tokens, (Mapping, Set)):
            raise TypeError
        return [errors.whole(name, token, 32) for token in tokens]
    except TypeError as wrong:
        if isinstance(wrong, errors.Error):
            raise
        raise errors.about(errors.WrongTypeError, name,
                           f": expected a text or a list of ids, found {tokens!r}") from None


class Tokenizer:
    """Text to ids and back, as the tools do it. Thread-safe."""

    def __init__(self, native):
        self._native = native  # called for the model; not the Model, which would never be freed
        info = native().info()
        self.bos, self.eos = info["bos"], info["eos"]  # ids; -1 for none
        self.adds_bos = info["adds_bos"]
        self.vocab_size = info["vocab"]

    def encode(self, text, add_special_tokens=True, parse_special=True):
        """Ids of a text, a BOS in front where the model's tokenizer puts one.

        `parse_special`: special tokens written in the text become their ids."""
        flags = (0 if parse_special else _PLAIN) | (0 if add_special_tokens else _NO_BOS)
        return self._native().tokenize(text_bytes(text), flags)

    def decode_bytes(self, tokens, skip_special_tokens=True):
        """The bytes of a sequence, which may end inside a character."""
        return self._native().detokenize(token_list(tokens, "tokens"), not skip_special_tokens)

    def decode(self, tokens, skip_special_tokens=True):
        """The text of a sequence; bytes that are no text become U+FFFD."""
        return self.decode_bytes(tokens, skip_special_tokens).decode("utf-8", "replace")

    def apply_chat_template(self, messages, tools=None, tokenize=True, add_generation_prompt=True,
                            **variables):
        """A conversation as ids, or as text where `tokenize` is false.

        `variables` go to the template, as enable_thinking=False."""
        request = {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
        if tools:
            request["tools"] = tools
        if variables:
            request["chat_template_kwargs"] = variables
        text, tokens = self._native().apply_chat_template(json_bytes(request))
        return tokens if tokenize else text.decode("utf-8", "replace")

    def __call__(self, text, **options):
        return self.encode(text, **options)


def json_bytes(value, name=""):
    """JSON in UTF-8; what it cannot hold is an InputError, which names the member of a dict without `name`."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError) as wrong:
        if not name and isinstance(value, dict):
            for member, one in value.items():
                json_bytes(one, str(member))
        raise errors.about(errors.InputError, name, (": " if name else "") + f"not JSON: {wrong}") from None
