"""Words of split patterns as Hugging Face's tokenizers cuts them: tests/tokenizer/patterns.json. Those
of Qwen 3.5 and Mistral (tekken) are transformers 5.24's, the others those of the models'
tokenizer.json. The words of a text are its line; joined they are the text.

    python patterns.py ../patterns.json    (tokenizers, transformers)
"""

import inspect
import json
import random
import re
import sys

from tokenizers import Regex, pre_tokenizers
from transformers import tokenization_utils_tokenizers
from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX

TEXTS = [
    "Hello, World! It's 12345 o'clock; WE'LL see.", "camelCaseWords and HTTPServer2Go",
    "हिन्दी में संयुक्ताक्षर क्षमता", "ภาษาไทยไม่มีช่องว่าง", "العَرَبِيَّةُ مُشَكَّلَة", "שָׁלוֹם עֲלֵיכֶם",
    "e\u0301a\u0300 Cafe\u0301 A\u030angstro\u0308m", "İstanbul ıslak Dž dž ǅ", "日本語とカタカナ、漢字。",
    "a\r\n\r\nb \r\n c\n\n\n", "path/to/file//x\n/\n", "   leading\t\tand trailing   ", "١٢٣ ⅷ ² ½ 𝟜",
    "👩‍👩‍👧 🇩🇪 ❤️", "don't DON'T 'S 's ſ's", "x=-1;y+=2**3//!!??\n\n", "\u0301lonely mark", "𝐀𝐛𝐜 ℵ ʰʲ",
    "", " ", "\n", "\u00a0\u2003\u3000x"]


# Characters of several scripts (Script_Extensions), and vertical space.
SCRIPTS = ["a·b aªb ａa a\u0363b aꜜ", "я\u0484я \u2e43я ⷠя", "α\u0342α β\u1dc0", "ー。「」a。。、", "アーイ ｱｰｲ ア、あー",
           "한、글", "ا،ب ا٠ب", "क।ख", "你。好〇你々你・㐀一", "a\n\n\u2028\x0b\x0b a\r\x0c\x0b\x85"]


OTHERS = {
    "gpt-4o": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
               r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
               r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
               r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
               r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "seed-coder": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|"
                   r"\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+"],
}


def tekken():
    source = inspect.getsource(tokenization_utils_tokenizers)
    return next(p for p in re.findall(r'r"([^"]+)"', source) if r"\p{Lu}\p{Lt}" in p)


def random_texts(count):
    rng = random.Random(5)
    letters = list("aZ'sSreT é\u0301\u0308İ9१1 \t\n\r/.,-!_क्षिमัอาשָع\u064eǅʰ日ℵ½👩\u200d\u00a0")
    return ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 24))) for _ in range(count)]


def words(cut, texts):
    """The words of each text, which joined are the text again."""
    found = [[word for word, _ in cut.pre_tokenize_str(text)] for text in texts]
    assert ["".join(one) for one in found] == texts
    return found


def main():
    texts = TEXTS + random_texts(150)
    out = {}
    for name, pattern in {"qwen35": PRETOKENIZE_REGEX, "tekken": tekken()}.items():
        cut = pre_tokenizers.Split(Regex(pattern), "isolated")
        out[name] = words(cut, texts)
    for name, patterns in OTHERS.items():
        steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        if name == "deepseek-coder":
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        cut = pre_tokenizers.Sequence(steps)
        out[name] = words(cut, texts[:len(TEXTS) + 40])
    for pattern in [r"\w+", r"\p{^L}+", r"[\u00b9\u672c]+", r"\x{e9}+"]:  # in Oniguruma's syntax
        cut = pre_tokenizers.Split(Regex(pattern), "isolated")
        out[pattern] = words(cut, [*TEXTS, "".join(map(chr, [*range(0xa0, 0x100), *range(0x2070, 0x208a)])),
                                   "\u2460\u24b6\u09f4\u0660\u2160", "caf\u00e9\u00e9 \u00b9\u672c\u672c"])
    scripts = ["Latin", "Cyrillic", "Greek", "Katakana", "Hiragana", "Hangul", "Arabic", "Devanagari", "Common"]
    for pattern in [r"\p{Han}+", r"[\p{^Han}]+", r"\v+", r"[a\v]+", *(r"\p{%s}+|." % name for name in scripts)]:
        cut = pre_tokenizers.Split(Regex(pattern), "isolated")
        out[pattern] = words(cut, SCRIPTS)
    lists = ("%s: [\n%s\n]" % (json.dumps(name), ",\n".join(json.dumps(one, ensure_ascii=False) for one in found))
             for name, found in out.items())
    with open(sys.argv[1], "w") as file:
        file.write("{\n%s\n}\n" % ",\n".join(lists))


main()
