"""Exported graphs in ONNX Runtime, beside leq: onnx_reader.py TOOLS LEQ_LOGITS. Skipped without onnx
and onnxruntime."""

import sys

from exported import GREEDY, Work, check, finish, models, skip, smollm2

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    skip(f"this Python has no {error.name}")

# f32 sums of other order; the largest difference seen is 2e-5.
TOLERANCE = 1e-3
# With quantized inputs a number half-way between two codes may fall to either side, and what follows
# falls with it: distances of distributions, where leq itself is 0.001 to 0.011 nats from f32.
KL_TOLERANCE = 0.005
LONG = 160  # more than the window of mistral-tiny


def session(folder):
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    # Else ONNX Runtime rounds the f32 inputs of weights in blocks to int8.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), options,
                                        providers=["CPUExecutionProvider"])


def run(graph, ids, past=None, mask=None):
    """ids [B][S] -> logits [B, S, V], past. `mask` [B][P + S]: 0 for padding."""
    ids = np.array(ids, np.int64)
    names = {value.name: value for value in graph.get_inputs()}
    if names["input_ids"].type == "tensor(int32)":
        return graph.run(["logits"], {"input_ids": ids.astype(np.int32)})[0], None
    before = next(iter(past.values())).shape[2] if past else 0
    mask = np.ones((len(ids), before + ids.shape[1]), np.int64) if mask is None else mask
    positions = np.maximum(mask.cumsum(1) - 1, 0)[:, before:]
    feed = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    for name, value in names.items():
        if name.startswith("past_key_values"):
            empty = np.zeros((len(ids), value.shape[1], 0, value.shape[3]), np.float32)
            feed[name] = past[name] if past else empty
    outputs = [value.name for value in graph.get_outputs()]
    made = dict(zip(outputs, graph.run(None, {k: v for k, v in feed.items() if k in names})))
    present = {name.replace("present", "past_key_values"): value
               for name, value in made.items() if name.startswith("present")}
    return made["logits"], present


def greedy(graph, ids):
    out = []
    logits, past = run(graph, [ids])
    for _ in range(GREEDY):
        out.append(int(logits[0, -1].argmax()))
        logits, past = run(graph, [[out[-1]]], past)
    return out


def weights_alone(work, model, *flags):
    name = f"{model.name} {' '.join(flags)}"
    file = work.quantized(model, "--act", "none", *flags)
    graph = session(work.exported(file))
    vocabulary = graph.get_outputs()[0].shape[-1]
    ids = work.ids(vocabulary, LONG)
    want, text = work.leq(file, ids)
    got, _ = run(graph, [ids])
    worst = np.abs(got[0] - want).max()
    check(worst < TOLERANCE, f"{name}: logits, off by {worst:.1e}")
    first, past = run(graph, [ids[:100]])
    second, _ = run(graph, [ids[100:]], past)
    worst = np.abs(np.concatenate([first[0], second[0]]) - want).max()
    check(worst < TOLERANCE, f"{name}: in two pieces through past keys, off by {worst:.1e}")
    check(greedy(graph, ids) == text, f"{name}: greedy text")
    return file, ids, want


def shapes(work, model):
    """Without a past, of fixed sizes, of a newer opset, and batches with padding on the left."""
    file, ids, want = weights_alone(work, model, "--type", "int4-g64")
    vocabulary = want.shape[1]
    for flags in (["--no-past"], ["--tokens", str(len(ids))], ["--opset", "24"],
                  ["--target", "tensorrt"]):
        got, _ = run(session(work.exported(file, *flags)), [ids])
        worst = np.abs(got[0] - want).max()
        check(worst < TOLERANCE, f"{model.name} {' '.join(flags)}: off by {worst:.1e}")
    short = work.ids(vocabulary, 9, seed=2)
    alone, _ = work.leq(file, short)
    pad = len(ids) - len(short)
    mask = np.ones((2, len(ids)), np.int64)
    mask[1, :pad] = 0
    got, _ = run(session(work.exported(file)), [ids, [0] * pad + short], mask=mask)
    worst = max(np.abs(got[0] - want).max(), np.abs(got[1, pad:] - alone).max())
    check(worst < TOLERANCE, f"{model.name}: a batch with padding, off by {worst:.1e}")


def quantized_inputs(work, model):
    name = model.name
    for act in ("row", "g128", "g32"):
        file = work.quantized(model, "--type", "int8", "--act", act)
        graph = session(work.exported(file, "--inputs", "file"))
        ids = work.ids(graph.get_outputs()[0].shape[-1], LONG)
        kl = work.divergence(work.leq(file, ids)[0], run(graph, [ids])[0][0])
        check(kl < KL_TOLERANCE, f"{name}: int8 inputs {act}, {kl:.5f} nats")
    file = work.quantized(model, "--type", "int8-tensor", "--act", "tensor", "--smooth", "0.5")
    ids = work.ids(graph.get_outputs()[0].shape[-1], LONG)
    want, _ = work.leq(file, ids)
    for flags in ([], ["--target", "tensorrt"], ["--target", "nnapi", "--tokens", str(LONG)]):
        kl = work.divergence(want, run(session(work.exported(file, *flags)), [ids])[0][0])
        check(kl < KL_TOLERANCE, f"{name}: stored scales {' '.join(flags)}, {kl:.5f} nats")


def main():
    work = Work(sys.argv)
    for model in models():
        weights_alone(work, model, "--type", "f32")
        weights_alone(work, model, "--type", "int8")
        shapes(work, model)
        quantized_inputs(work, model)
    story = models()[0]
    for kind in ("bf16", "nf4", "uint4-g32", "int3-g32", "int8-g64"):
        weights_alone(work, story, "--type", kind)
    weights_alone(work, story, "--type", "int4-g64", "--hadamard")
    for model in smollm2():
        weights_alone(work, model, "--type", "int4-g64")
    finish()


main()
