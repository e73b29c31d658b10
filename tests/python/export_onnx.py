"""Exported graphs in ONNX Runtime, beside leq. Skipped without onnx and onnxruntime."""

from export_models import GREEDY, SOURCE, TOLERANCE, Work, check, finish, models, skip, smollm2

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    skip(f"this Python has no {error.name}")

# With quantized inputs a number half-way between two codes may fall to either side, and what follows
# falls with it: distances of distributions, where leq itself is 0.001 to 0.011 nats from f32.
KL_TOLERANCE = 0.005
LONG = 160  # more than the window of mistral-tiny
# Seeded checkpoints with several rules of RoPE and layers without one, norms behind sublayers, and factors.
FAMILIES = ("gemma-3", "granite", "granite-4", "smollm3")


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


def weights_alone(work, model, *flags, prose=False):
    name = f"{model.name} {' '.join(flags)}"
    file = work.quantized(model, "--act", "none", *flags)
    graph = session(work.exported(file))
    vocabulary = graph.get_outputs()[0].shape[-1]
    ids = work.prose(file, LONG) if prose else work.ids(vocabulary, LONG)
    want, _ = work.leq(file, ids)
    got, _ = run(graph, [ids])
    worst = np.abs(got[0] - want).max()
    check(worst < TOLERANCE, f"{name}: logits, off by {worst:.1e}")
    first, past = run(graph, [ids[:100]])
    second, _ = run(graph, [ids[100:]], past)
    worst = np.abs(np.concatenate([first[0], second[0]]) - want).max()
    check(worst < TOLERANCE, f"{name}: in two pieces through past keys, off by {worst:.1e}")
    work.check_text(file, ids, greedy(graph, ids), name)
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
        if "tensorrt" in flags:
            broken = documented_rules(work.exported(file, *flags), "tensorrt")
            check(not broken, f"{model.name}: rules of tensorrt {broken[:2] or ''}")
    short = work.ids(vocabulary, 9, seed=2)
    alone, _ = work.leq(file, short)
    pad = len(ids) - len(short)
    mask = np.ones((2, len(ids)), np.int64)
    mask[1, :pad] = 0
    got, _ = run(session(work.exported(file)), [ids, [0] * pad + short], mask=mask)
    worst = max(np.abs(got[0] - want).max(), np.abs(got[1, pad:] - alone).max())
    check(worst < TOLERANCE, f"{model.name}: a batch with padding, off by {worst:.1e}")


# ONNX Runtime's table of its NNAPI provider's operators, those that decoders may need.
NNAPI = {"Add", "Cast", "Concat", "DequantizeLinear", "Div", "Exp", "Gather", "Identity", "MatMul", "Max", "Min",
         "Mul", "Neg", "Pow", "QuantizeLinear", "ReduceMean", "Reshape", "Sigmoid", "Slice", "Softmax", "Split",
         "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze"}


def documented_rules(folder, target):
    """What the documents of TensorRT and of the NNAPI provider ask of a quantized graph; returns what breaks
    them."""
    model = onnx.load(str(folder / "model.onnx"))
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    made = {name: node for node in model.graph.node for name in node.output}
    broken = []
    for node in model.graph.node:
        told = {attribute.name: attribute for attribute in node.attribute}
        if target == "nnapi" and (node.op_type not in NNAPI or node.domain):
            broken.append(f"{node.name}: operator {node.op_type}")
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        codes, scale = stored.get(node.input[0]), stored.get(node.input[1])
        zero = stored.get(node.input[2]) if len(node.input) > 2 else None
        if scale is None:
            broken.append(f"{node.name}: a scale that is computed")
            continue
        if zero is not None and onnx.numpy_helper.to_array(zero).any():
            broken.append(f"{node.name}: a zero point")
        block = told["block_size"].i if "block_size" in told else 0
        is_int4 = codes is not None and codes.data_type == onnx.TensorProto.INT4
        if codes is not None and not is_int4 and codes.data_type != onnx.TensorProto.INT8:
            broken.append(f"{node.name}: codes of type {codes.data_type}")
        if codes is None and (len(scale.dims) > 0 or block):
            broken.append(f"{node.name}: inputs with more than one scale")
        if codes is not None and (block not in (64, 128) if is_int4 else block or len(scale.dims) > 1):
            broken.append(f"{node.name}: weights in blocks of {block}, scales {list(scale.dims)}")
        if target == "nnapi" and int(np.prod(scale.dims)) != 1:
            values = onnx.numpy_helper.to_array(scale, str(folder))
            if (values != values.flat[0]).any():
                broken.append(f"{node.name}: more than one scale")
    # No float islands: with quantized inputs every product of a weight has both sides quantized.
    quantizes = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    for node in model.graph.node:
        sides = [made.get(name) for name in node.input]
        if node.op_type != "MatMul" or not quantizes or "layers." not in node.name:
            continue
        kinds = [side is not None and side.op_type == "DequantizeLinear" for side in sides]
        if kinds[1] and not kinds[0]:
            broken.append(f"{node.name}: f32 inputs beside quantized weights")
    return broken


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
        folder = work.exported(file, *flags)
        kl = work.divergence(want, run(session(folder), [ids])[0][0])
        check(kl < KL_TOLERANCE, f"{name}: stored scales {' '.join(flags)}, {kl:.5f} nats")
        if flags:
            broken = documented_rules(folder, flags[1])
            check(not broken, f"{name}: rules of {flags[1]} {broken[:2] or ''}")


def main():
    work = Work()
    for model in models():
        weights_alone(work, model, "--type", "f32")
        weights_alone(work, model, "--type", "int8")
        shapes(work, model)
        quantized_inputs(work, model)
    for family in FAMILIES:
        for kind in ("f32", "int8", "int4-g32"):
            weights_alone(work, SOURCE / "tests/golden/families" / family, "--type", kind)
        shapes(work, SOURCE / "tests/golden/families" / family)
    story = models()[0]
    for kind in ("bf16", "nf4", "uint4-g32", "int3-g32", "int4-g64", "int8-g64"):
        weights_alone(work, story, "--type", kind)
    for model in smollm2():
        for kind in ("int8", "int4-g64"):
            weights_alone(work, model, "--type", kind, prose=True)
    finish()


main()
