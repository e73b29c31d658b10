"""Exported folders in transformers, beside leq: huggingface_reader.py TOOLS LEQ_LOGITS. Skipped without
torch and transformers; what needs compressed-tensors is left out without it."""

import importlib.util
import sys

from exported import GREEDY, Work, check, finish, models, skip

try:
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    skip(f"this Python has no {error.name}")

TOLERANCE = 1e-3  # f32 sums of other order; the largest difference seen is 3e-5
# Inputs in int8: transformers divides by (127 + 128) / 2 where leq divides by 127.
KL_TOLERANCE = 0.01
LONG = 200  # more than the window of mistral-tiny
TEXT = "Once upon a time  there was a king's son, 12345 na\u00efve \u65e5\u672c\u8a9e \U0001f642.\n\n\tEnd"


def load(folder):
    model, said = transformers.AutoModelForCausalLM.from_pretrained(folder,
                                                                    output_loading_info=True)
    left = {key: value for key, value in said.items() if value}
    check(not left, f"{folder.name}: every tensor has its place {left or ''}")
    return model


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def floats(work, source, *flags):
    name = f"{source.name} {' '.join(flags)}"
    file = work.quantized(source, *flags)
    folder = work.exported(file, "--safetensors")
    model = load(folder)
    ids = work.ids(model.config.vocab_size, LONG)
    want, greedy = work.leq(file, ids)
    worst = np.abs(logits(model, ids) - want).max()
    check(worst < TOLERANCE, f"{name}: logits, off by {worst:.1e}")
    made = model.generate(torch.tensor([ids]), max_new_tokens=GREEDY, do_sample=False,
                          eos_token_id=None, pad_token_id=0)
    check(made[0, LONG:].tolist() == greedy, f"{name}: greedy text")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    check(ids == work.tokens(file, TEXT), f"{name}: tokens")
    original = transformers.AutoTokenizer.from_pretrained(source)
    check(tokenizer.chat_template == original.chat_template, f"{name}: chat template")


def compressed(work, source):
    for kind, act in (("int8", "none"), ("int4-g32", "none"), ("int8-g32", "none"),
                      ("int8", "row"), ("int4-g32", "row")):
        name = f"{source.name} compressed {kind} act {act}"
        if "-g" in kind and source.name == "mistral-tiny":
            continue  # 432 columns, which no group divides
        file = work.quantized(source, "--type", kind, "--act", act)
        model = load(work.exported(file, "--compressed-tensors"))
        ids = work.ids(model.config.vocab_size, LONG)
        want, _ = work.leq(file, ids)
        got = logits(model, ids)
        if act == "none":
            worst = np.abs(got - want).max()
            check(worst < TOLERANCE, f"{name}: logits, off by {worst:.1e}")
        else:
            kl = work.divergence(want, got)
            check(kl < KL_TOLERANCE, f"{name}: {kl:.5f} nats")


def main():
    transformers.logging.set_verbosity_error()
    work = Work(sys.argv)
    for source in models():
        for kind in ("f32", "int4-g32"):
            floats(work, source, "--type", kind, "--act", "none")
    floats(work, models()[0], "--type", "uint3-g32", "--act", "none", "--smooth", "0.5")
    if importlib.util.find_spec("compressed_tensors") is None:
        print("not here: compressed-tensors")
        finish()
    for source in models():
        if source.name != "gpt2-tiny":
            compressed(work, source)
    finish()


main()
