"""The tokenizer of a .leq file as Hugging Face files: tokenizer.json, tokenizer_config.json and the chat
template. docs/tokenizers.md documents the tables."""

import json
import struct
from dataclasses import dataclass, field

import numpy

from ..errors import InputError

_BYTE_BPE, _, _UNIGRAM = range(3)
_CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 5
_SPACE_MARK = "\u2581"
_GPT2_PATTERN = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
_BEHAVIORS = ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")
_PREPEND_SCHEMES = ("never", "first", "always")
_FLAGS = ("ignore_merges", "byte_fallback", "fuse_unknown", "strip_leading_space", "add_bos", "add_eos", "cut_at_words")
_ADDED_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def _printable_alphabet():
    """GPT-2's: bytes that Latin-1 prints stand for themselves, others for U+0100 and up."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(0x100 + i) for i, byte in enumerate(others)}}


_ALPHABET = _printable_alphabet()


class _Header:
    """Reads the table tokenizer.header, which was checked when the file was opened."""

    def __init__(self, data):
        self._data, self._at = data, 0

    def numbers(self, count, kind="I"):
        values = struct.unpack_from(f"<{count}{kind}", self._data, self._at)
        self._at += 4 * count
        return values

    def number(self):
        return self.numbers(1)[0]

    def text(self):
        size = self.number()
        self._at += size
        return self._data[self._at - size:self._at].decode(errors="replace")

    def flags(self, names):
        bits = self.number()
        return {name: bool(bits >> i & 1) for i, name in enumerate(names)}


@dataclass
class _Tables:
    kind: int
    flags: dict
    unknown: int
    bos: int
    eos: int
    normalizers: list
    steps: list  # pre-tokenizers
    added: list
    types: list
    pieces: list  # bytes
    merges: list = field(default_factory=list)  # [left, right], by rank

    def text(self, token):
        return self.pieces[token].decode(errors="replace")

    def spelled(self, token):
        """As in the vocabulary; added tokens are spelled as they are."""
        if self.kind != _BYTE_BPE or self.types[token] in (_CONTROL, _USER_DEFINED):
            return self.text(token)
        return "".join(map(_ALPHABET.__getitem__, self.pieces[token]))


def _read_tables(source):
    header = _Header(source.table("tokenizer.header").tobytes())
    _, _, kind, count, _, _ = header.numbers(6)
    flags = header.flags(_FLAGS)
    unknown, bos, eos = header.numbers(3, "i")
    header.text()  # the name of the source
    normalizers = [(header.number(), header.text(), header.text()) for _ in range(header.number())]
    steps = [(*header.numbers(3), header.flags(("invert", "cut_words")), header.text())
             for _ in range(header.number())]
    added = [(header.numbers(1, "i")[0], header.flags(_ADDED_FLAGS), header.text()) for _ in range(header.number())]
    ends = source.table("tokenizer.offsets", numpy.uint32)[:count + 1].tolist()
    data = source.table("tokenizer.bytes").tobytes()
    pieces = [data[first:last] for first, last in zip(ends, ends[1:])]
    tables = _Tables(kind, flags, unknown, bos, eos, normalizers, steps, added,
                     source.table("tokenizer.types").tolist(), pieces)
    if kind != _UNIGRAM:
        slots = source.table("tokenizer.merges", numpy.uint32).reshape(-1, 4)  # left, right, rank, result
        # Merges of characters that are no pieces never apply.
        slots = slots[(slots[:, [0, 1, 3]] < count).all(axis=1)]
        tables.merges = slots[numpy.lexsort((slots[:, 1], slots[:, 0], slots[:, 2]))][:, :2].tolist()
    return tables


def _normalizer(step):
    kind, pattern, content = step
    if kind == 0:
        return {"type": "NFC"}
    if kind == 1:
        return {"type": "Prepend", "prepend": content}
    if kind == 2:
        return {"type": "Replace", "pattern": {"String": pattern}, "content": content}
    return {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}


def _byte_level(prefix_space, use_regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": use_regex}


def _pre_tokenizers(tables, name):
    """Byte-level models end with ByteLevel, which has GPT-2's pattern and the prefix space. With other splits that
    pattern becomes a split step, since onnxruntime-genai would ignore it otherwise."""

    def is_gpt2(step):
        return step[0] == 0 and step[1] == 0 and not step[3]["invert"] and step[4] == _GPT2_PATTERN

    made = []
    for i, (kind, behavior, prepend, flags, pattern) in enumerate(tables.steps):
        rest = tables.steps[i + 1:]
        if kind == 1:
            made.append({"type": "Metaspace", "replacement": _SPACE_MARK, "prepend_scheme": _PREPEND_SCHEMES[prepend],
                         "split": flags["cut_words"]})
        elif kind == 2:
            if rest and not (len(rest) == 1 and is_gpt2(rest[0])):
                raise InputError(f"{name}: a prefix space before other cuts has no words in tokenizer.json")
            return [*made, _byte_level(True, bool(rest))]
        elif len(tables.steps) == 1 and is_gpt2(tables.steps[0]):
            return [_byte_level(False, True)]
        else:
            made.append({"type": "Split", "pattern": {"Regex": pattern}, "behavior": _BEHAVIORS[behavior],
                         "invert": flags["invert"]})
    return [*made, _byte_level(False, False)] if tables.kind == _BYTE_BPE else made


def _decoder(tables):
    if tables.kind == _BYTE_BPE:
        return _byte_level(True, True)
    steps = [{"type": "Replace", "pattern": {"String": _SPACE_MARK}, "content": " "}, {"type": "ByteFallback"},
             {"type": "Fuse"}]
    if tables.flags["strip_leading_space"]:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return _sequence(steps, "decoders")


def _sequence(steps, members):
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", members: steps}


def _post_processor(tables):
    """Adds BOS and EOS around a text if the tokenizer does."""

    def special(token, wanted):
        return [tables.text(token)] if wanted and token >= 0 else []

    def parts(texts):
        return [{"SpecialToken": {"id": text, "type_id": 0}} for text in texts]

    def text(name):
        return {"Sequence": {"id": name, "type_id": 0}}

    before = special(tables.bos, tables.flags["add_bos"])
    after = special(tables.eos, tables.flags["add_eos"])
    if not before and not after:
        return None
    ids = dict(zip(before, [tables.bos])) | dict(zip(after, [tables.eos]))
    return {"type": "TemplateProcessing",
            "single": [*parts(before), text("A"), *parts(after)],
            "pair": [*parts(before), text("A"), text("B"), *parts(after)],
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in ids.items()}}


def _tokenizer_json(tables, name):
    if tables.kind == _UNIGRAM:
        raise InputError(f"{name}: unigram tokenizers are not written as tokenizer.json; copy the checkpoint's own "
                         "files")
    spelled = [tables.spelled(token) for token in range(len(tables.pieces))]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": token, "content": tables.text(token), **flags}
                         for token, flags, _ in sorted(tables.added, key=lambda added: added[0])],
        "normalizer": _sequence([_normalizer(step) for step in tables.normalizers], "normalizers"),
        "pre_tokenizer": _sequence(_pre_tokenizers(tables, name), "pretokenizers"),
        "post_processor": _post_processor(tables),
        "decoder": _decoder(tables),
        "model": {"type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": tables.flags["fuse_unknown"], "byte_fallback": tables.flags["byte_fallback"],
                  "ignore_merges": tables.flags["ignore_merges"],
                  "unk_token": spelled[tables.unknown] if tables.unknown >= 0 else None,
                  "vocab": {spelled[token]: token for token, type in enumerate(tables.types) if type != _UNUSED},
                  "merges": [[spelled[left], spelled[right]] for left, right in tables.merges]}}


def _config(source, tables, reader):
    if reader == "transformers":
        name = "PreTrainedTokenizerFast"
    else:  # classes that make onnxruntime-genai read tokenizer.json
        name = "GPT2Tokenizer" if tables.kind == _BYTE_BPE else "LlamaTokenizer"
    config = {"tokenizer_class": name, "add_bos_token": tables.flags["add_bos"],
              "add_eos_token": tables.flags["add_eos"], "clean_up_tokenization_spaces": False,
              "model_max_length": source.config.context}
    for key, token in (("bos_token", tables.bos), ("eos_token", tables.eos), ("unk_token", tables.unknown)):
        if token >= 0:
            config[key] = tables.text(token)
    if source.chat_template:
        config["chat_template"] = source.chat_template
    return config


def tokenizer_files(source, reader, notes):
    """{name: text}, for the reader "genai" or "transformers". Without a tokenizer in the file: none, and a note."""
    if not source.has_tokenizer:
        notes.append("the file carries no tokenizer: the folder has none")
        return {}
    tables = _read_tables(source)
    tokenizer = _tokenizer_json(tables, source.name)
    files = {"tokenizer.json": json.dumps(tokenizer, indent=1, ensure_ascii=False),
             "tokenizer_config.json": json.dumps(_config(source, tables, reader), indent=2, ensure_ascii=False)}
    if source.chat_template:
        files["chat_template.jinja"] = source.chat_template
    return files
