"""Exported folders in onnxruntime-genai, beside leq. Skipped without onnxruntime-genai."""

from export_models import GREEDY, TOLERANCE, Work, check, finish, models, skip, smollm2

try:
    import numpy as np
    import onnx
    import onnxruntime_genai as genai
except ImportError as error:
    skip(f"this Python has no {error.name}")

TEXT = "Once upon a time there was"
MORE = " a don't 12345 na\u00efve \u65e5\u672c\u8a9e \U0001f642\n\n\tx"


def compare(work, model, *flags, prose=False):
    """A file with f32 inputs, exported as it is by default: leq's logits and its text."""
    name = f"{model.name} {' '.join(flags)}"
    file = work.quantized(model, "--act", "none", *flags)
    folder = work.exported(file, "--target", "genai")
    onnx.checker.check_model(str(folder / "model.onnx"))
    loaded = genai.Model(str(folder))
    tokenizer = genai.Tokenizer(loaded)
    ids = tokenizer.encode(TEXT + MORE).tolist()
    check(ids == work.tokens(file, TEXT + MORE), f"{name}: tokens")
    ids = work.prose(file, 150) if prose else (ids * 8)[:150]  # more than the window of mistral-tiny
    want, _ = work.leq(file, ids)
    options = genai.GeneratorParams(loaded)
    options.set_search_options(max_length=len(ids) + GREEDY, do_sample=False)
    generator = genai.Generator(loaded, options)
    generator.append_tokens(ids)
    logits = np.array(generator.get_logits()).reshape(-1, want.shape[1])[-1]
    worst = np.abs(logits - want[-1]).max()
    check(worst < TOLERANCE, f"{name}: logits, off by {worst:.1e}")
    text = []
    while not generator.is_done() and len(text) < GREEDY:
        generator.generate_next_token()
        text.append(int(generator.get_next_tokens()[0]))
    work.check_text(file, ids, text, name)


def f32_inputs(work, model, kind):
    """--inputs f32 of a file with int8 inputs is its weights alone: the folder of --act none."""
    folders = [work.exported(work.quantized(model, "--type", kind), "--target", "genai", "--inputs", "f32"),
               work.exported(work.quantized(model, "--act", "none", "--type", kind), "--target", "genai")]
    for name in ("model.onnx.data", "genai_config.json", "tokenizer.json"):
        check((folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(),
              f"{model.name} {kind}: {name} of --inputs f32")


def default_inputs(work, model):
    """int8 inputs by the operator's own rule: a folder that loads and tells a story."""
    file = work.quantized(model, "--type", "int4-g64")
    loaded = genai.Model(str(work.exported(file, "--target", "genai")))
    tokenizer = genai.Tokenizer(loaded)
    options = genai.GeneratorParams(loaded)
    options.set_search_options(max_length=60, do_sample=False)
    generator = genai.Generator(loaded, options)
    generator.append_tokens(tokenizer.encode(TEXT).tolist())
    while not generator.is_done():
        generator.generate_next_token()
    text = tokenizer.decode(generator.get_sequence(0))
    check(text.strip().startswith(TEXT) and len(text.split()) > 25, f"{model.name}: {text!r}")


def main():
    work = Work()
    for model in models():
        for kind in ("f32", "int8", "int4-g64", "uint4-g32"):
            compare(work, model, "--type", kind)
    for kind in ("int8-g64", "int3-g32", "int4-g128"):
        compare(work, models()[0], "--type", kind)
    default_inputs(work, models()[0])
    f32_inputs(work, models()[0], "int4-g64")
    for model in smollm2():
        for kind in ("int4-g64", "int8"):
            compare(work, model, "--type", kind, prose=True)
    finish()


main()
