"""Cases of each kind of input from a seed: examples in code, made or damaged at random."""

import functools
import json
import pathlib
import random
import struct
import tempfile

import gguf
import numpy
import tokenizers
from tokenizers import models, trainers

TESTS = pathlib.Path(__file__).resolve().parent.parent
VALUES = [None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 0.0, -0.0, 0.1, 1e308,
          5e-324, 1e22, 123456789.125, "", "a", "\u00e9", "\U0001f600", "\n\t\"\\/", "\x7f", "\u2028", "x" * 40, [], {}]
TOKENS = {
    "json": [b"null", b"true", b"1e999", b"-0", b"01", b"1.", b".5", b"1E+2", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00",
             b"\xff", b"\xef\xbb\xbf", b"\x00", b"{\"a\":1,\"a\":2}", b"[[[[", b"]]", b",", b"\"", b"NaN", b"/**/", b"\t",
             b"\xc2\xa0", b"18446744073709551616", b"-9223372036854775809", b"\x1f", b"\xed\xa0\x80", b"\xc0\x80"],
    "http": [b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"Host: a\r\n", b"Content-Length: 5\r\n", b"Content-Length: 1\r\n",
             b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n",
             b"5;x=y\r\n", b"Connection: close\r\n", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2", b"%41", b"%", b"?a=b", b"\x00",
             b"\xe9", b"http://h/x", b"*", b"+5", b"0x5", b"1 0", b"\x0b", b"\x80", b"Content-Length: +5\r\n", b" folded\r\n"],
    "jinja": [b"{{", b"}}", b"{%", b"%}", b"{#", b"#}", b"-", b"|", b"(", b")", b"'", b" if ", b" else ", b"\n", b"~", b"[::-1]",
              b"{%- ", b" -%}", b"+%}", b"loop.", b" not ", b" is ", b" in ", b"**", b"//", b"0", b"1.5", b"none", b"\\n"],
}


def damaged(dice, data, other, words=()):
    """A few bytes flipped, removed, repeated, exchanged or inserted."""
    data = bytearray(data)
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        at = dice.randrange(len(data) + 1)
        until = min(len(data), at + dice.choice([1, 1, 2, 4, 8, 30]))
        how = dice.randrange(7)
        if how == 0 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif how == 1:
            del data[at:until]
        elif how == 2:
            data[at:at] = data[at:until]
        elif how == 3:
            start = dice.randrange(len(other) + 1)
            data[at:at if dice.random() < 0.5 else until] = other[start:start + dice.randrange(20)]
        elif how == 4 and words:
            data[at:at if dice.random() < 0.7 else until] = dice.choice(words)
        elif how == 5 and at + 8 <= len(data):
            size = dice.choice([1, 2, 4, 8])
            value = dice.choice([0, 1, 2, 127, 128, 255, 2**(8 * size) - 1, 2**(8 * size - 1)])
            data[at:at + size] = (value % 2**(8 * size)).to_bytes(size, "little")
        elif how == 6 and dice.random() < 0.3:
            del data[at:]
    return bytes(data)


def value(dice, depth=3):
    if depth == 0 or dice.random() < 0.4:
        return dice.choice(VALUES) if dice.random() < 0.7 else dice.uniform(-1, 1) * 10.0 ** dice.randrange(-30, 30)
    if dice.random() < 0.5:
        return [value(dice, depth - 1) for _ in range(dice.randrange(4))]
    return {dice.choice(["a", "b", "\u00e9", "", "A", "a\n"]): value(dice, depth - 1) for _ in range(dice.randrange(4))}


def places(tree):
    """All (container, key) of a tree of JSON."""
    found = []
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        found += [(tree, key), *places(tree[key])]
    return found


def changed(dice, tree, values=VALUES):
    """A tree of JSON with one part removed, replaced by a value or by another part."""
    tree = json.loads(json.dumps(tree))
    spots = places(tree)
    if not spots:
        return tree
    holder, key = dice.choice(spots)
    how = dice.randrange(4)
    if how == 0:
        del holder[key]
    elif how == 1:
        holder[key] = json.loads(json.dumps(dice.choice(values)))
    elif how == 2:
        other, at = dice.choice(spots)
        holder[key] = json.loads(json.dumps(other[at]))
    elif isinstance(holder[key], int) and not isinstance(holder[key], bool):
        holder[key] += dice.choice([-1, 1, 7, -holder[key] - 1])
    return tree


def json_case(dice, _):
    text = json.dumps(value(dice, 4), ensure_ascii=dice.random() < 0.5, indent=dice.choice([None, None, 1]))
    data = text.encode()
    return {"bytes": data if dice.random() < 0.2 else damaged(dice, data, json.dumps(value(dice)).encode(), TOKENS["json"])}


def safetensors_case(dice, _):
    sizes = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "BOOL": 1, "F64": 8, "F8_E4M3": 1, "I16": 2, "U32": 4}
    header, end = {}, 0
    if dice.random() < 0.3:
        header["__metadata__"] = dice.choice([{"format": "pt"}, {}, {"a": "\u00e9"}, {"a": 1}, [], None])
    for name in dice.sample(["a", "b", "w.x", "\u00e9", ""], dice.randrange(1, 4)):
        dtype = dice.choice(list(sizes))
        shape = [dice.randrange(4) for _ in range(dice.randrange(3))]
        count = sizes[dtype]
        for n in shape:
            count *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + count]}
        end += count
    if dice.random() < 0.6:
        header = changed(dice, header, [*VALUES, "F32", "F4", "Q8", "C64", [0], [0, 4], [2, 2], [4, 0], 4])
    if dice.random() < 0.3 and len(header) > 1:
        header = dict(dice.sample(list(header.items()), len(header)))
    text = json.dumps(header, ensure_ascii=False).encode() + b" " * dice.randrange(9)
    data = struct.pack("<Q", len(text)) + text + dice.randbytes(max(0, end + dice.choice([0, 0, 0, 0, -1, 1])))
    return {"bytes": damaged(dice, data, data) if dice.random() < 0.3 else data}


def gguf_example(dice):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        writer = gguf.GGUFWriter(file.name, "llama")
        adders = [(writer.add_uint8, 255), (writer.add_int8, -1), (writer.add_uint16, 65535), (writer.add_int16, -2),
                  (writer.add_uint32, 7), (writer.add_int32, -7), (writer.add_float32, 0.1), (writer.add_bool, True),
                  (writer.add_string, "h\u00e9"), (writer.add_uint64, 2**40), (writer.add_int64, -(2**40)),
                  (writer.add_float64, 1e300), (writer.add_array, ["a", "bc", ""]), (writer.add_array, [1, 2, 3]),
                  (writer.add_array, [1.5, 2.5]), (writer.add_array, [True, False])]
        for number, (add, what) in enumerate(dice.sample(adders, dice.randrange(1, 6))):
            add(f"k.{number}", what)
        if dice.random() < 0.3:
            writer.add_custom_alignment(dice.choice([8, 32, 64]))
        for number in range(dice.randrange(4)):
            shape = [dice.randrange(1, 4) for _ in range(dice.randrange(1, 4))]
            kind = dice.choice(list(gguf.GGMLQuantizationType))
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            if kind.name in ("F32", "F16", "I32", "I8", "I64", "F64", "I16"):
                data = numpy.zeros(shape, {"F": "<f", "I": "<i"}[kind.name[0]] + str(size))
                writer.add_tensor(f"t.{number}", data)
            else:
                data = numpy.frombuffer(dice.randbytes(size * int(numpy.prod(shape))), numpy.uint8)
                writer.add_tensor(f"t.{number}", data.reshape([*shape[:-1], shape[-1] * size]), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return pathlib.Path(file.name).read_bytes()


def gguf_case(dice, _):
    data = gguf_example(dice)
    return {"bytes": data if dice.random() < 0.2 else damaged(dice, data, data, [struct.pack("<Q", 2**63), b"\x09\0\0\0"])}


REQUESTS = [b"GET /v1/models?a=%41&b HTTP/1.1\r\nHost: h\r\n\r\n",
            b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: t\r\n\r\n",
            b"GET http://h/a?b HTTP/1.1\r\nHost: other\r\nX-A:  b c \t\r\n\r\n", b"GET / HTTP/1.0\r\nA: b\r\n\r\n",
            b"\r\nOPTIONS * HTTP/1.1\r\nhost:h\r\nConnection: keep-alive\r\n\r\n"]


def http_case(dice, _):
    data = b"".join(dice.choice(REQUESTS) for _ in range(dice.randrange(1, 4)))
    return {"bytes": data if dice.random() < 0.1 else damaged(dice, data, dice.choice(REQUESTS), TOKENS["http"])}


MESSAGES = [{"role": "system", "content": "Be b\u00efg."}, {"role": "user", "content": " Hi <x>\n"},
            {"role": "assistant", "content": "<think>t</think> a, b", "tool_calls": [
                {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, None]}}}]},
            {"role": "tool", "name": "f", "tool_call_id": "abcdefghi", "content": "r"}, {"role": "user", "content": "42"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}}}]
VARIABLES = {"n": 7, "x": -2.5, "s": "Hello World", "t": " a,b,,c ", "u": "stra\u00dfe \u00c9a\u0301 \U0001f600\u3000",
             "l": [3, 1, 2, 1], "w": ["b", "A", "a", "C"], "d": {"b": 1, "a": [1, {"k": "v"}], "C": None}, "e": "",
             "z": None, "b": True, "rows": [{"k": "p", "v": 2}, {"k": "q", "v": 1}, {"k": "p", "v": 3}], "r": "it's \"q\" \\ \n"}
FILTERS = """abs capitalize count d('x') default('y',true) dictsort dictsort(by='value') e escape first float float(1.5)
format(1) indent indent(2,true) indent(width=1,blank=true) int int(5) items join join(',') join('-',attribute='k') last
length list lower map('upper') map(attribute='k') map(attribute='v',default=0) max min reject('odd') reject('none')
rejectattr('k','equalto','p') replace('a','b') replace('l','',1) reverse round round(1) round(2) round(-1) round(1,'floor')
round(0,'ceil') safe select select('string') selectattr('v','gt',1) selectattr('k') sort sort(reverse=true) sort(attribute='v')
sort(case_sensitive=true) string sum sum(attribute='v') sum(start=10) title tojson tojson(indent=2)
tojson(ensure_ascii=true) tojson(sort_keys=true) tojson(separators=(',',':')) trim trim('a ') unique unique(attribute='k')
upper wordcount attr('k')""".split()
METHODS = """strip() strip('a ') lstrip() rstrip('o') split() split(',') split(',',1) rsplit(',',1) splitlines()
splitlines(true) replace('l','L') replace('','.') replace('l','L',1) startswith('H') endswith(('d','\u3000'))
removeprefix('He') removesuffix('ld') upper() lower() title() capitalize() find('l') rfind('l') count('l') join(['x','y'])
isdigit() isnumeric() isdecimal() isalpha() isalnum() isspace() isupper() islower() format(1) keys() values() items()
get('b') get('q',3) copy() index(1) count(1)""".split()
TESTED = """boolean callable defined divisibleby(2) eq(1) escaped even false float ge(1) gt(1) in([1,'a']) integer iterable
le(1) lower lt(1) mapping ne(1) none number odd sameas(none) sequence string true undefined upper""".split()
SIGNS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]
ATOMS = ["0", "1", "2", "-3", "1.5", "1e3", "0.1", "2.675", "-4.0", "true", "false", "none", "'a'", "'l'", "'%s|%d'", "'a\\nb'",
         "[]", "[1,'a']", "{}", "{'k': 1}", "(1,2)", "range(4)", "messages", "messages[0]", "tools", "nothing",
         "namespace(v=1).v", "loop", "dict(a=1)", *VARIABLES]


def expression(dice, depth=3):
    if depth == 0 or dice.random() < 0.15:
        return dice.choice(ATOMS)
    one, how = expression(dice, depth - 1), dice.randrange(12)
    if how < 4:
        return f"{one}|{dice.choice(FILTERS)}"
    if how < 6:
        return f"({one}).{dice.choice(METHODS)}"
    if how == 6:
        return f"({one} is {dice.choice(['', 'not '])}{dice.choice(TESTED)})"
    if how == 7:
        return f"({one}){dice.choice(['[0]', '[-1]', '[1:]', '[::-1]', '[:-1:2]', '[2:0:-1]', '.k', '.role', '[n]'])}"
    if how == 8:
        return f"({one} if {expression(dice, depth - 2 if depth > 1 else 0)} else {dice.choice(ATOMS)})"
    if how == 9:
        return f"(not {one})"
    return f"({one} {dice.choice(SIGNS)} {expression(dice, depth - 1)})"


def statements(dice, depth=2):
    inner = "".join(statements(dice, depth - 1) for _ in range(dice.randrange(1, 3))) if depth else "-"
    one, dash = expression(dice, 2), dice.choice(["", "", "-", "+"])
    end = dice.choice(["", "-"])
    return dice.choice([
        f"{{{{{dash} {one} {end}}}}}", f" a\n  {{%{dash} if {one} {end}%}}\n{inner}{{% elif n %}}e{{% else %}} f \n{{% endif %}}\n",
        f"{{% for i in {one} {end}%}}{{{{ loop.index }}}}{{{{ i }}}}{inner}{{%{dash} else %}}none{{% endfor %}}\n",
        f"{{% for k, v in d.items() if {one} %}}{{{{ k }}}}={{{{ v }}}}{{{{ ',' if not loop.last }}}}{{% endfor %}}",
        f"{{% set q = {one} %}}{{{{ q }}}}", f"{{% set q %}}{inner}{{% endset %}}{{{{ q | length }}}}",
        f"{{% macro m(a, b=2) {end}%}}{{{{ a }}}},{{{{ b }}}}{inner}{{% endmacro %}}{{{{ m({one}) }}}}{{{{ m(1, b={one}) }}}}",
        f"{{% set ns = namespace(c=0) %}}{{% for i in l %}}{{% set ns.c = ns.c + i %}}{{% if i == 2 %}}{{% continue %}}"
        f"{{% endif %}}{inner}{{% endfor %}}{{{{ ns.c }}}}",
        f"{{% filter {dice.choice(FILTERS)} %}} x {inner}{{% endfilter %}}", f"{{% with q = {one} %}}{{{{ q }}}}{inner}{{% endwith %}}",
        f"{{#{dash} note {end}#}}\n", f"\n  {{%{dash} set y = 1 {end}%}}  \n text \n"])


TEMPLATES = [path.read_bytes() for path in sorted((TESTS / "chat" / "jinja").glob("*.jinja"))]


def jinja_case(dice, _):
    how = dice.randrange(5)
    if how < 3:
        text = "{{ " + expression(dice, dice.randrange(1, 5)) + " }}"
    else:
        text = "".join(statements(dice) for _ in range(dice.randrange(1, 3)))
    data = text.encode()
    if how == 4:
        data = damaged(dice, data, dice.choice(TEMPLATES), TOKENS["jinja"])
    return {"bytes": data, "messages": MESSAGES[:dice.choice([2, 5])], "tools": dice.choice([None, TOOLS]),
            "variables": VARIABLES}


def schema(dice, depth=3):
    """A schema of the keywords that replies are held to."""
    how = dice.randrange(8 if depth else 5)
    if how == 0:
        made = {"type": "string"}
        if dice.random() < 0.4:
            made["pattern"] = dice.choice(["^[a-z]+$", "^a|b$", "[0-9]", "^(?:ab?){1,3}$", "^.{2,4}$", "^c", "^[^a]*$", "^\\d+$"])
        if dice.random() < 0.3:
            made["format"] = dice.choice(["date", "time", "ipv4", "ipv6", "uuid", "email", "hostname", "duration", "date-time"])
        for name in ("minLength", "maxLength"):
            if dice.random() < 0.2:
                made[name] = dice.randrange(1, 6)
        return made
    if how == 1:
        made = {"type": dice.choice(["integer", "number"])}
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            if dice.random() < 0.25:
                made[name] = dice.choice([1, 2, 7, 0.5, 2.25] if name == "multipleOf" else [-20, 0, 3, -1.5, 2.25, 100])
        return made
    if how == 2:
        return {"enum": [dice.choice(["a", "b", 1, 1.5, None, True, ["a", 2], "\u00e9\n"]) for _ in range(dice.randrange(1, 4))]}
    if how == 3:
        return {"type": dice.choice(["null", "boolean", ["integer", "null"], ["string", "boolean"], "object", "array"])}
    if how == 4:
        return {"const": dice.choice([1, "x", {"a": [1]}, None, 0.5])}
    if how == 5:
        made = {"type": "array", "items": schema(dice, depth - 1)}
        for name in ("minItems", "maxItems"):
            if dice.random() < 0.3:
                made[name] = dice.randrange(1, 4)
        return made
    if how == 6:
        return {dice.choice(["anyOf", "anyOf", "oneOf"]): [schema(dice, depth - 1) for _ in range(dice.randrange(1, 4))]}
    names = dice.sample(["a", "B", "long name", "\u00e9"], dice.randrange(4))
    made = {"type": "object", "properties": {name: schema(dice, depth - 1) for name in names},
            "additionalProperties": dice.choice([False, False, True, {"type": "integer"}])}
    made["required"] = [name for name in names if dice.random() < 0.6]
    return made


STRINGS = ["", "a", "b", "ab", "abc", "1", "42", "\u00e9", "aabab", "2026-02-28", "2026-02-30", "12:30:00Z", "25:00:00Z", "1.2.3.4",
           "1.2.3.256", "::1", "1::2::3", "12345678-1234-1234-1234-123456789abc", "a@b.de", "a.b", "P1D", "PT5M", "P1H",
           "2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z", "-a.b", "\U0001f600", "a\nb", "\u2028", "x y", "abcdef"]


def instance(dice, of, depth=6):
    """A value that the schema may accept, with the members in its order."""
    if dice.random() < 0.05 or depth == 0:
        return value(dice, 1)
    for name in ("anyOf", "oneOf"):
        if name in of:
            return instance(dice, dice.choice(of[name]), depth - 1)
    if "enum" in of or "const" in of:
        return dice.choice(of.get("enum", [of.get("const")]))
    kind = of.get("type", "string")
    kind = dice.choice(kind) if isinstance(kind, list) else kind
    if kind == "object" and "properties" in of:
        made = {name: instance(dice, held, depth - 1) for name, held in of["properties"].items()
                if name in of["required"] or dice.random() < 0.5}
        if dice.random() < 0.2:
            made["other"] = dice.choice([1, "x"])
        return made
    if kind == "array" and "items" in of:
        return [instance(dice, of["items"], depth - 1) for _ in range(dice.randrange(4))]
    return {"string": lambda: dice.choice(STRINGS), "null": lambda: None, "boolean": lambda: dice.random() < 0.5,
            "integer": lambda: dice.randrange(-30, 120), "object": lambda: dice.choice([{}, {"a": 1}]),
            "number": lambda: dice.choice([0, 0.5, -1.5, 2.25, 14, 99.99, 1e3, -21, 3.0]), "array": list}[kind]()


def schema_case(dice, _):
    made = schema(dice)
    documents = [json.dumps(instance(dice, made), ensure_ascii=False, separators=(",", ":")) for _ in range(12)]
    return {"bytes": json.dumps(made).encode(), "documents": documents}


CORPUS = """The quick brown fox jumps over the lazy dog. It's a story about words, and the words are repeated: the quick
fox, the lazy dog. def main(): return 0; int main() { return 1; } Gr\u00f6\u00dfe, na\u00efve, fa\u00e7ade; 12345 and 2026. \u65e5\u672c\u8a9e"""
PIECES = ["the", " ", "  ", "quick", "fox", "\n", "\t", "'s", "12345", "9", "\u00f6", "e\u0301", "\u65e5\u672c", "\U0001f600", ".", "!?",
          "\u00a0", "\u3000", "<s>", "</s>", "<x>", "\u2581", "_", "A", "Gr\u00f6\u00dfe", "\u0301", "\u200d", "a b", "\r\n", "\x00"]
PATTERNS = ["\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\s+", "'s|'t| ?\\p{L}+| ?\\p{N}+|\\s+(?!\\S)|\\s+", "\\s+", "[0-9]{1,3}", "\\w+|[^\\w\\s]+"]


def part(dice, name):
    """A normalizer, pre-tokenizer or decoder of tokenizer.json."""
    split = {"type": "Split", "pattern": dice.choice([{"Regex": dice.choice(PATTERNS)}, {"String": dice.choice([" ", "o", "th"])}]),
             "behavior": dice.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]),
             "invert": dice.random() < 0.3}
    parts = {
        "normalizer": [{"type": "NFC"}, {"type": "Prepend", "prepend": "\u2581"},
                       {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                       {"type": "Replace", "pattern": {"String": "o"}, "content": "\u00f6o"}],
        "pre_tokenizer": [split, split, {"type": "Digits", "individual_digits": dice.random() < 0.5}, {"type": "Whitespace"},
                          {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": split["behavior"]},
                          {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme":
                           dice.choice(["always", "never", "first"]), "split": dice.random() < 0.5}]}
    return dice.choice(parts[name])


@functools.cache
def trained(byte_level, size):
    """A tokenizer.json of CORPUS, as text."""
    made = tokenizers.Tokenizer(models.BPE())
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else None
    made.train_from_iterator([CORPUS if byte_level else CORPUS.replace(" ", "\u2581")], trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<s>", "</s>", "<unk>"], initial_alphabet=alphabet))
    return made.to_str()


def tokenizer_case(dice, _):
    byte_level = dice.random() < 0.5
    tree = json.loads(trained(byte_level, dice.choice([300, 340])))
    level = {"type": "ByteLevel", "add_prefix_space": dice.random() < 0.2, "trim_offsets": True, "use_regex": dice.random() < 0.5}
    steps = [part(dice, "pre_tokenizer") for _ in range(dice.randrange(3))] + ([level] if byte_level else [])
    tree["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps} if len(steps) != 1 else steps[0]
    tree["normalizer"] = dice.choice([None, {"type": "Sequence", "normalizers": [
        part(dice, "normalizer") for _ in range(dice.randrange(3))]}])
    tree["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True} if byte_level else {
        "type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    tree["model"].update(ignore_merges=dice.random() < 0.3, unk_token=dice.choice([None, "<unk>"]), fuse_unk=dice.random() < 0.3)
    for token in tree["added_tokens"]:
        token.update({name: dice.random() < 0.3 for name in ("single_word", "lstrip", "rstrip", "normalized")})
    if dice.random() < 0.3:
        tree["added_tokens"].append({"id": len(tree["model"]["vocab"]), "content": "<x>", "special": False, "single_word": False,
                                     "lstrip": False, "rstrip": False, "normalized": dice.random() < 0.5})
    if dice.random() < 0.2:
        rules = {name: tree[name] for name in ("normalizer", "pre_tokenizer", "decoder", "added_tokens")}
        tree.update(changed(dice, rules))
    texts = ["".join(dice.choice(PIECES) for _ in range(dice.randrange(12))) for _ in range(20)]
    return {"bytes": json.dumps(tree).encode(), "texts": texts}


MAKERS = {"json": json_case, "safetensors": safetensors_case, "gguf": gguf_case, "http": http_case, "jinja": jinja_case,
          "schema": schema_case, "tokenizer": tokenizer_case}


def cases(kind, seed, count):
    """The first `count` cases of a kind; each depends on its own seed only."""
    return [{"kind": kind, **MAKERS[kind](random.Random(f"{kind} {seed} {number}"), number)} for number in range(count)]
