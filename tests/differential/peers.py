"""The other program of each kind of input, and the differences from it that are meant."""

import contextlib
import copy
import dataclasses
import decimal
import hashlib
import json
import pathlib
import re
import signal
import struct
import sys
import tempfile
import urllib.parse
import warnings
from typing import Callable

import gguf
import h11
import jsonschema
import safetensors
import tokenizers

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "chat" / "jinja"), str(TESTS / "grammar")]
import oracle  # noqa: E402
import validate  # noqa: E402

warnings.simplefilter("ignore")


@dataclasses.dataclass
class Members:
    """An object of JSON with its members in order."""

    pairs: list

    def __getitem__(self, name):
        return dict(self.pairs)[name]


def members(pairs):
    return Members(pairs)


def limited(number):
    """An integer as leq has it: beyond 64 bits it is a float."""
    value = float(number) if len(number) > 25 or not -(2**63) <= int(number) < 2**64 else int(number)
    return finite(number) if isinstance(value, float) else value


def finite(number):
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number that is too large")
    return value


def refuse(word):
    raise ValueError(f"{word} is no JSON")


def python_json(case):
    return json.loads(case["bytes"].decode(), object_pairs_hook=members, parse_int=limited, parse_float=finite,
                      parse_constant=refuse)


def mark(data):
    return hashlib.sha256(data).hexdigest()


def read_safetensors(case):
    found = safetensors.deserialize(case["bytes"])
    return {name: [one["dtype"], list(one["shape"]), mark(one["data"])] for name, one in found}


def read_gguf(case):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(case["bytes"])
        file.flush()
        reader = gguf.GGUFReader(file.name)
        values = {}
        for name, field in reader.fields.items():
            if name.startswith("GGUF."):
                continue
            kind, is_list = field.types[0], field.types[0] == gguf.GGUFValueType.ARRAY
            skipped = 5 if is_list else 4 if kind == gguf.GGUFValueType.STRING else 3
            raw = b"".join(part.tobytes() for part in field.parts[skipped:])
            item = int(field.parts[3][0]) if is_list else None
            values[name.encode().hex()] = [int(kind), item, raw.hex(), field]
        tensors = [[one.name.encode().hex(), one.tensor_type.name, [int(n) for n in reversed(one.shape)],
                    int(one.data_offset), mark(one.data.tobytes())] for one in reader.tensors]
        return {"values": values, "tensors": tensors, "bytes": len(case["bytes"])}


def same_gguf(_, leq, peer):
    if [list(one) for one in leq["tensors"]] != peer["tensors"]:
        return False
    ours = dict(leq["values"].pairs)
    if ours.keys() != peer["values"].keys():
        return False
    for name, (kind, item, raw, got) in ours.items():
        other = peer["values"][name]
        if [kind, item, raw] != other[:3]:
            return False
        if kind == 8 or item == 8:  # texts, which need not be UTF-8
            texts = [bytes.fromhex(text) for text in (got if kind == 9 else [got])]
            shown = b"".join(struct.pack("<Q", len(text)) + text for text in texts) if kind == 9 else texts[0]
            if shown.hex() != raw:
                return False
        elif got is not None and got != other[3].contents():
            return False
    return True


def render(case):
    template = oracle.environment().from_string(case["bytes"].decode())
    conversation = copy.deepcopy({name: case[name] for name in ("messages", "tools", "variables")})  # sum() changes lists
    reason = []
    text = oracle.render(template, conversation, False, reason)
    if text is None:
        raise ValueError(repr(reason[0]))
    return text


def validity(case):
    """For each document whether the schema accepts it."""
    schema = json.loads(case["bytes"])
    validator = validate.validator_of(schema)
    return [validator.is_valid(json.loads(text, parse_float=decimal.Decimal)) for text in case["documents"]]


def same_validity(_, leq, peer):
    """Whatever the grammar writes is valid, and it writes whatever is valid, or has a note."""
    return bool(leq["notes"]) or leq["accepts"] == peer


def tokenize(case):
    tokenizer = tokenizers.Tokenizer.from_str(case["bytes"].decode())
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in case["texts"]]
    return {"ids": ids, "decoded": [tokenizer.decode(one).encode().hex() for one in ids]}


def same_ids(case, leq, peer):
    return leq["ids"] == peer["ids"]


def read_http(case):
    """The requests that h11 reads, as leq has them, and why it reads no more."""
    connection, requests = h11.Connection(h11.SERVER), []
    connection.receive_data(case["bytes"])
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            return {"requests": requests, "end": str(error)}
        if isinstance(event, h11.Request):
            target, headers = event.target, list(event.headers)
            whole = re.fullmatch(rb"(?i:https?)://([^/?]+)(.*)", target)  # the absolute form names the host
            if whole:
                target = whole[2] or b"/"
                headers = [pair for pair in headers if pair[0] != b"host"] + [(b"host", whole[1])]
            path, _, query = target.partition(b"?")
            head = [event.method.decode(), urllib.parse.unquote_to_bytes(path).hex(), query.hex(),
                    [[name.hex(), value.hex()] for name, value in headers]]
            body = b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            requests.append([*head, body.hex()])
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:
                return {"requests": requests, "end": "the connection is closed"}
            connection.start_next_cycle()
        else:
            return {"requests": requests, "end": None}


def begin_equal(leq, peer):
    """Whether the requests are equal that both read, but for h11's lower case of codings."""
    def shown(requests):
        return [[method, path, query, [pair for pair in headers if pair[0] != b"transfer-encoding".hex()], body]
                for method, path, query, headers, body in requests]

    count = min(len(leq["requests"]), len(peer["requests"]))
    return shown(leq["requests"][:count]) == shown(peer["requests"][:count])


def same_requests(_, leq, peer):
    """The same requests, after which both wait or both refuse the rest; h11 reads none after the last of a connection."""
    more = len(leq["requests"]) - len(peer["requests"])
    if peer["end"] == "the connection is closed":
        return begin_equal(leq, peer) and more >= 0
    return begin_equal(leq, peer) and more == 0 and (leq["end"] is None) == (peer["end"] is None)


def ends(ours, theirs):
    """Equal requests, then leq and h11 say something (None: that they wait for more bytes)."""
    def says(pattern, text):
        return text is None if pattern is None else re.search(pattern, text or "") is not None

    return lambda case, leq, peer: (begin_equal(leq["value"], peer["value"]) and says(ours, leq["value"]["end"])
                                    and says(theirs, peer["value"]["end"]))


@dataclasses.dataclass
class Kind:
    peer: str
    read: Callable
    accepted: list
    same: Callable = lambda case, leq, peer: repr(leq) == repr(peer)
    cost: int = 1  # of a case, in cases of JSON


def leq_says(pattern):
    return lambda case, leq, peer: re.search(pattern, leq.get("refused", "")) is not None


def peer_says(pattern):
    return lambda case, leq, peer: re.search(pattern, peer.get("refused", "")) is not None


def lazy(case, leq, peer):
    text = peer.get("value", "")
    says = re.search("generator|sequence item|unhashable|NoneType|not subscriptable", peer.get("refused", ""))
    if b"range(4)" in case["bytes"] and "value" in leq:
        return True
    return re.search(r"generator object|range\(|iterator object|reversed object|LoopContext|<bound|dict_|<Macro|<jinja2|<function", text) is not None or says


def narrower(case, leq, peer):
    """Whatever leq writes is valid; what is valid and not written has one of these forms."""
    if "value" not in leq or "value" not in peer:
        return False
    left = [text for text, ours, theirs in zip(case["documents"], leq["value"]["accepts"], peer["value"]) if ours != theirs]
    sound = all(theirs for ours, theirs in zip(leq["value"]["accepts"], peer["value"]) if ours)
    return sound and all(b"hostname" in case["bytes"] or b"email" in case["bytes"] or re.search(r'e[-+]\d|\.0|\\.*":', text) for text in left)


def renumbered(case, leq, peer):
    tree = json.loads(case["bytes"])
    vocab = tree["model"]["vocab"]
    new = [token["id"] for token in tree["added_tokens"] if token["content"] not in vocab]
    return new != list(range(len(vocab), len(vocab) + len(new)))


def prepended(case, leq, peer):
    return case["bytes"].count(b'"Prepend"') > 0 and (b'"first"' in case["bytes"] or b'"normalized": true' in case["bytes"])


KINDS = {
    "json": Kind("Python's json", python_json, [
        ("leq refuses a duplicate key", leq_says("duplicate key")),
        ("leq refuses nesting deeper than 64", leq_says("nested deeper")),
        ("leq refuses a half of a surrogate pair, which no UTF-8 has",
         lambda case, leq, peer: "refused" in leq and re.search(r"\\ud[89a-f]", repr(peer.get("value")))),
        ("leq skips a byte order mark", lambda case, leq, peer: case["bytes"].startswith(b"\xef\xbb\xbf")),
    ]),
    "safetensors": Kind("safetensors", read_safetensors, [
        ("leq does not read __metadata__", peer_says("expected a map|expected a string")),
        ("leq lists types that it does not know, whatever their size", peer_says("unknown variant|subbytes")),
        ("leq refuses sizes beyond 63 bits", leq_says("in its shape is too large")),
        ("leq refuses a duplicate key", leq_says("duplicate key")),
    ],
                        lambda case, leq, peer: {one[0]: one[1:] for one in leq} == peer),
    "gguf": Kind("gguf-py", read_gguf, [
        ("leq names types that are not weights, or not read", leq_says("holds activations|is not read|not supported|removed")),
        ("leq refuses truth values other than 0 and 1", leq_says("should be true or false")),
        ("leq refuses bytes after the last tensor, overlaps and odd offsets",
         leq_says("bytes after the last tensor|overlaps the one before|is no multiple of")),
        ("leq refuses tensors without sizes or with a size of 0", leq_says("dimension of|dimensions, expected")),
        ("gguf-py shortens what is cut off", leq_says("a text at offset|bytes are there|needs \\d+ bytes")),
        ("gguf-py refuses names that are not UTF-8", peer_says("UnicodeDecodeError")),
    ], same_gguf, 4),
    "http": Kind("h11", read_http, [
        ("leq skips empty lines before a request (RFC 9112, 2.2)", ends("", "no request line received")),
        ("leq refuses a line when it is there, h11 when the head is", ends(".", None)),
        ("leq refuses targets that are no path", ends("expected a request line", "")),
        ("leq refuses a header that continues on the next line (RFC 9112, 5.2)", ends("a (header|trailer) that is not", "")),
        ("leq takes tabs and bytes from 128 on in a target", ends("", "illegal request line.*(\\\\t|\\\\x[89a-f])")),
        ("leq refuses a line at its end, h11 before", ends(None, "illegal|malformed")),
        ("leq refuses versions other than 1.0 and 1.1", ends("expected HTTP/1.1 or HTTP/1.0", "")),
        ("leq refuses what another reader might take otherwise: two lengths, a length beside chunks",
         ends("occurs twice|contradict", "")),
        ("leq refuses control characters beside a chunk's size", ends("a chunk without a size", "")),
    ], same_requests),
    "jinja": Kind("Jinja2", render, [
        ("leq's lazy sequences are lists: what Jinja2 shows of one, or does not look into", lazy),
        ("leq refuses a construct by name", leq_says("is not supported")),
        ("leq refuses to loop over or cut what has no elements; in Jinja2 it is empty, or not looked at",
         leq_says(r"cannot loop over|\[:\] of|, expected a dict|cannot be written as a text|% with too many values")),
        ("leq refuses names in dict(), to sort by what is not there, and JSON of it, which is a list in the oracle",
         leq_says("dict has no argument|is undefined|tojson of undefined")),
        ("leq's filters take what is undefined as an empty text", peer_says("is undefined|has no element|object' has no attribute")),
        ("leq refuses results beyond its limits", leq_says("too large|more than|took more")),
        ("leq takes text that is not UTF-8 as it is", peer_says("UnicodeDecodeError")),
        ("leq's filters take numbers as texts, and its tuples have the methods of lists",
         peer_says("unsupported operand type.*'str'|'tuple object' has no attribute|object has no attribute")),
    ], cost=4),
    "schema": Kind("jsonschema", validity, [
        ("leq refuses schemas of which no value is valid", leq_says("is less than|number is between|no text fits|no value")),
        ("leq writes a part of what is valid: hostnames with a letter, numbers with two digits of exponent and no needless"
         " .0, names beside the schema's without escapes", narrower),
        ("jsonschema cannot divide by this step", peer_says("unsupported operand")),
    ], same_validity, 4),
    "tokenizer": Kind("tokenizers", tokenize, [
        ("leq names parts that it does not read", leq_says("not supported|unsupported|has type|is already|key \"")),
        ("leq gives members that are absent or odd their default", peer_says("missing field|invalid type|did not match")),
        ("tokenizers 0.23 takes a digit before a single_word token for no part of a word",
         lambda case, leq, peer: b'"single_word": true' in case["bytes"] and any("9" in text or "5" in text for text in case["texts"])),
        ("leq gives an added token the id of the file, tokenizers the next one", renumbered),
        ("a Prepend and then another step that looks for the start of the text", prepended),
    ], same_ids, 4),
}


class TookLong(BaseException):
    pass


def end(*_):
    raise TookLong


def answer(kind, case):
    """{"value": ...} or {"refused": why}."""
    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, 1)
    try:
        return {"value": kind.read(case)}
    except TookLong:
        return {"refused": "took long"}
    except BaseException as error:  # whatever a damaged input does to it, also a panic
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"refused": f"{type(error).__name__}: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def is_same(kind, case, leq, peer):
    with contextlib.suppress(UnicodeDecodeError):
        return kind.same(case, leq, peer)
    return False
