"""Words of Qwen 3.5's and Mistral's (tekken) split patterns as Hugging Face's tokenizers cuts them,
with the patterns that transformers 5.24 has: tests/tokenizer/patterns.json.

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


def tekken():
    source = inspect.getsource(tokenization_utils_tokenizers)
    return next(p for p in re.findall(r'r"([^"]+)"', source) if r"\p{Lu}\p{Lt}" in p)


def random_texts(count):
    rng = random.Random(5)
    letters = list("aZ'sSreT é\u0301\u0308İ9१1 \t\n\r/.,-!_क्षिमัอาשָع\u064eǅʰ日ℵ½👩\u200d\u00a0")
    return ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 24))) for _ in range(count)]


def main():
    texts = TEXTS + random_texts(150)
    out = {}
    for name, pattern in {"qwen35": PRETOKENIZE_REGEX, "tekken": tekken()}.items():
        cut = pre_tokenizers.Split(Regex(pattern), "isolated")
        out[name] = [{"text": text, "words": [word for word, _ in cut.pre_tokenize_str(text)]}
                     for text in texts]
    with open(sys.argv[1], "w") as file:
        json.dump(out, file, indent=0, ensure_ascii=False)
        file.write("\n")


main()
