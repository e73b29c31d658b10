"""leq.lm_eval under lm-evaluation-harness's own classes: what it scores is what logits say."""

import os
import pathlib
import sys
import tempfile

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model
except ImportError:
    print("python: NOT RUN: there is no lm_eval here")
    sys.exit(77)

import leq
import leq.lm_eval
import numpy

SOURCE = pathlib.Path(os.environ["LEQ_SOURCE"])


def naive(model, context, continuation):
    rows = model.logits(context + continuation)[len(context) - 1:-1].astype(numpy.float64)
    rows = rows - rows.max(1, keepdims=True)
    logs = rows - numpy.log(numpy.exp(rows).sum(1, keepdims=True))
    return logs[range(len(continuation)), continuation].sum()


def instance(kind, *words):
    return Instance(request_type=kind, doc={}, arguments=words, idx=0)


with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/story.leq"
    leq.quantize(SOURCE / "examples/storyteller", path, type="int8")
    lm = get_model("leq").create_from_arg_string(f"path={path},threads=2")
    with leq.Model(path, context=1024, threads=2) as model:
        pairs = [("Once upon a time", " there was"), ("Once upon a time", " a dog"), ("The dog", " ran."),
                 ("", "Once upon a time")]
        scores = lm.loglikelihood([instance("loglikelihood", *pair) for pair in pairs])
        for (context, continuation), (score, _) in zip(pairs, scores):
            ids = model.tokenizer.encode(context) if context else [model.tokenizer.bos]
            whole = model.tokenizer.encode(context + continuation)
            expected = naive(model, ids, whole[len(ids):])
            assert abs(score - expected) < 1e-6, (context, continuation, score, expected)
        text = (SOURCE / "examples/storyteller/heldout.txt").read_text()[:3000]
        (rolling,) = lm.loglikelihood_rolling([instance("loglikelihood_rolling", text)])
        tokens = model.tokenizer.encode(text, add_special_tokens=False)
        assert len(tokens) < 1023, len(tokens)
        expected = naive(model, [model.tokenizer.bos], tokens)
        assert abs(rolling - expected) < 1e-5, (rolling, expected)
        (reply,) = lm.generate_until([instance("generate_until", "Once upon a time",
                                               {"until": ["."], "max_gen_toks": 40})])
        assert reply == model.generate("Once upon a time", max_tokens=40, temperature=0, stop=["."]).text
    # Texts longer than the context are cut from the left.
    short = get_model("leq").create_from_arg_string(f"path={path},threads=2,context=32")
    with leq.Model(path, context=1024, threads=2) as model:
        words = " ".join(["the dog ran to the big tree and the cat sat on it"] * 8)
        for context, continuation in ((words, " there was"), ("Once", " " + words)):
            (score, _), = short.loglikelihood([instance("loglikelihood", context, continuation)])
            ids = model.tokenizer.encode(context + continuation)
            first = max(len(ids) - 32, len(model.tokenizer.encode(context)))
            expected = naive(model, ids[-33:first], ids[first:])
            assert abs(score - expected) < 1e-6, (continuation, score, expected)
        for most in (31, 32, 500):
            (reply,) = short.generate_until([instance("generate_until", words, {"until": [], "max_gen_toks": most})])
            last = model.tokenizer.encode(words)[-1:]
            assert reply == model.generate(last, max_tokens=31, temperature=0).text, (most, reply)
print("lm_eval: log-likelihoods, rolling ones and replies agree")
