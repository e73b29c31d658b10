"""A small tokenizer of Gemma's form (transformers' GemmaTokenizer), and what tokenizers makes of
texts with it: tests/tokenizer/gemma.json.

    python gemma.py ../gemma.json    (tokenizers, transformers 5.24)
"""

import json
import sys

from tokenizers import Tokenizer, models, trainers
from transformers import AddedToken, GemmaTokenizer

CORPUS = """The quick brown fox jumps over the lazy dog. It's a story about words, and the words are
repeated: the quick fox, the lazy dog, the brown words. def main(): return 0; int main() { return 1; }
Größe, naïve, façade; 12345 and 2026. Another sentence with other words about the same story."""
TEXTS = ["", " ", "the", " the", "the quick brown fox", "a  b", "   three spaces", "tabs\tand\nlines\n\n\nend ",
         "def main():\n    return 0\n", "Größe naïve", "日本語 and 😀", "<start_of_turn>user\nwords<end_of_turn>\n",
         "▁the▁dog", "<bos>the<eos>", "x<unk>y", "\x00\x7f", "e\u0301", "12345 2026", "don't", "\n", "\n\n",
         "the\u00a0dog", "a" * 40, "<0x0A> is no byte", "<pad><mask>"]
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"]
PLAIN = ["\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "▁▁▁▁"]


def main():
    trained = Tokenizer(models.BPE())
    trained.train_from_iterator([CORPUS.replace(" ", "▁").replace("\n", "")],
                                trainers.BpeTrainer(vocab_size=160, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    names = SPECIAL + PLAIN + [f"<0x{byte:02X}>" for byte in range(256)]
    names += [piece for piece in sorted(model["vocab"], key=model["vocab"].get) if piece not in names]
    blanks = [("\n", "\n"), ("▁", "▁"), ("▁▁", "▁"), ("▁▁", "▁▁")]
    tokenizer = GemmaTokenizer(vocab={name: i for i, name in enumerate(names)}, add_bos_token=True,
                               merges=blanks + [tuple(pair) for pair in model["merges"]])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[5:]})
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in PLAIN])
    fast = tokenizer.backend_tokenizer
    cases = []
    for text in TEXTS:
        ids = fast.encode(text, add_special_tokens=True).ids
        cases.append({"text": text, "ids": ids, "decoded": fast.decode(ids, skip_special_tokens=True)})
    with open(sys.argv[1], "w") as out:
        json.dump({"tokenizer": json.loads(fast.to_str()), "cases": cases}, out, ensure_ascii=False)
        out.write("\n")


main()
