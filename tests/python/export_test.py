"""What leq.export writes: the numbers of the file, whole graphs, and refusals in one line that leave nothing behind."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import unittest

import leq
import numpy
from export_models import SHARED, SOURCE, Work, skip

for package in ("onnx", "safetensors"):
    if importlib.util.find_spec(package) is None:
        skip(f"this Python has no {package}")

import onnx
from leq.export import cli, export_huggingface, export_onnx
from safetensors.numpy import load_file

STORY = SOURCE / "examples" / "storyteller"
FAMILIES = SOURCE / "tests" / "golden" / "families"
WORK = Work()


def story(kind, act="none", *flags):
    return WORK.quantized(STORY, "--type", kind, "--act", act, *flags)


def run(*words):
    """(status, what stderr says) of leq-export."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        return cli.main([str(word) for word in words]), said.getvalue()


class Graph:
    """model.onnx of a folder, read by onnx itself."""

    def __init__(self, folder):
        onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
        self.model = onnx.load(str(folder / "model.onnx"))
        self.stored = {tensor.name: tensor for tensor in self.model.graph.initializer}
        self.inputs = [value.name for value in self.model.graph.input]
        self.outputs = [value.name for value in self.model.graph.output]

    def array(self, name):
        return onnx.numpy_helper.to_array(self.stored[name])

    def count(self, op):
        return sum(node.op_type == op for node in self.model.graph.node)

    def reader_of(self, name):
        node, = (node for node in self.model.graph.node if name in node.input)
        return node, {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def values(file, name):
    """A tensor's dequantized values [rows, columns], as leq's kernels take them."""
    shape = next(tensor["shape"] for tensor in leq.inspect(file)["tensors"] if tensor["name"] == name)
    out = numpy.empty(shape, numpy.float32)
    leq._leq.Model(os.fsencode(file), load=1).tensor_floats(name, out)
    return out


class NumbersOfTheFile(unittest.TestCase):
    TYPES = ("int8", "uint8", "int8-g128", "int4-g64", "uint4-g32", "int3-g32", "uint2-g64")

    def test_dequantize_linear_gives_the_values(self):
        for kind in self.TYPES:
            file = story(kind)
            graph = Graph(WORK.exported(file))
            for name in ("layers.0.q", "layers.5.down"):
                node, told = graph.reader_of(name)
                self.assertEqual(node.op_type, "DequantizeLinear")
                arrays = [graph.array(part) for part in node.input]
                codes, scales = arrays[0].astype(numpy.int32), arrays[1]
                zeros = arrays[2].astype(numpy.int32) if len(arrays) > 2 else 0
                self.assertEqual(len(arrays) == 3, kind.startswith("uint"))
                if "block_size" in told:  # [K][N], a scale for each block of K
                    self.assertEqual((told["axis"], told["block_size"]), (0, int(kind.rpartition("g")[2])))
                    rows = numpy.arange(len(codes)) // told["block_size"]
                    scales, zeros = scales[rows], zeros[rows] if len(arrays) > 2 else 0
                else:
                    self.assertEqual(told["axis"], 1)
                numpy.testing.assert_array_equal(((codes - zeros).astype(numpy.float32) * scales).T, values(file, name))

    def test_matmul_nbits_stands_for_the_values(self):
        for kind in self.TYPES:
            file = story(kind)
            graph = Graph(WORK.exported(file, "--target", "genai"))
            for name in ("layers.0.q", "layers.5.down"):
                want = values(file, name)
                node, told = graph.reader_of(name + ".blocks")
                bits, block = told["bits"], told["block_size"]
                self.assertEqual((node.op_type, node.domain), ("MatMulNBits", "com.microsoft"))
                self.assertEqual((told["N"], told["K"]), want.shape)
                arrays = [graph.array(part) for part in node.input[1:]]

                def unpacked(packed):
                    rows = packed.reshape(len(want), -1)
                    return rows if bits == 8 else numpy.stack([rows & 15, rows >> 4], 2).reshape(len(rows), -1)

                codes = unpacked(arrays[0])[:, :want.shape[1]].astype(numpy.int32)
                places = numpy.arange(want.shape[1]) // block
                zeros = unpacked(arrays[2])[:, places].astype(numpy.int32) if len(arrays) > 2 else 1 << (bits - 1)
                numpy.testing.assert_array_equal((codes - zeros).astype(numpy.float32) * arrays[1][:, places], want)

    def test_large_tensors_begin_with_a_page_of_the_data_file(self):
        folder = WORK.exported(story("int8"))
        for tensor in onnx.load(str(folder / "model.onnx"), load_external_data=False).graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                self.assertLessEqual(len(tensor.raw_data), 1024)
                continue
            place = {entry.key: entry.value for entry in tensor.external_data}
            self.assertEqual(int(place["offset"]) % (4096 if int(place["length"]) >= 4096 else 64), 0)

    def test_rows_of_int8_are_compressed_tensors(self):
        file = story("int8", "row")
        folder = WORK.exported(file, "--compressed-tensors")
        read = load_file(folder / "model.safetensors")
        module = "model.layers.2.mlp.gate_proj.weight"
        self.assertEqual(read[module].dtype, numpy.int8)
        numpy.testing.assert_array_equal(read[module] * read[module + "_scale"], values(file, "layers.2.gate"))
        group, = json.loads((folder / "config.json").read_text())["quantization_config"]["config_groups"].values()
        self.assertEqual(group["format"], "int-quantized")
        self.assertEqual(group["input_activations"]["strategy"], "token")
        self.assertEqual(len(group["targets"]), 42)

    def test_words_hold_eight_codes_of_four_bits(self):
        file = story("int4-g64")
        read = load_file(WORK.exported(file, "--compressed-tensors") / "model.safetensors")
        module, want = "model.layers.0.self_attn.q_proj.weight_", values(file, "layers.0.q")
        self.assertEqual(read[module + "shape"].tolist(), list(want.shape))
        words = read[module + "packed"].view(numpy.uint32)
        codes = numpy.stack([(words >> 4 * i & 15).astype(numpy.int32) - 8 for i in range(8)], 2).reshape(want.shape)
        numpy.testing.assert_array_equal(codes.astype(numpy.float32) * numpy.repeat(read[module + "scale"], 64, 1),
                                      want)

    def test_weights_alone_where_inputs_are_to_be_f32(self):
        folder = WORK.exported(story("int8", "g128"), "--compressed-tensors", "--inputs", "f32")
        config = json.loads((folder / "config.json").read_text())["quantization_config"]
        self.assertIsNone(config["config_groups"]["group_0"]["input_activations"])

    def test_a_checkpoint_has_configuration_numbers_and_tokens_of_the_file(self):
        texts = ["Once upon a time, there was a king's son.", "  two  spaces\n\n\t.",
                 "na\u00efve \u65e5\u672c \U0001f642 1234567", "<s>[INST] x </s><|endoftext|><|im_start|>user\n<|im_end|>",
                 bytes(range(1, 256)), (STORY / "heldout.txt").read_text()[:20000]]
        for name in ("storyteller", "gpt2-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "qwen35-tiny",
                     "qwen3moe-tiny"):
            source = STORY if name == "storyteller" else SHARED / name
            if not source.is_dir():
                print("not here:", source)
                continue
            file = WORK.quantized(source, "--type", "int4-g32", "--act", "none")
            again = WORK.folder / (name + "-again.leq")
            leq.quantize(WORK.exported(file, "--safetensors"), again, type="f32")
            want, found = leq.inspect(file), leq.inspect(again)
            for section in ("config", "chat_template", "generation"):
                if section == "config":
                    want[section].pop("mtp", None)
                self.assertEqual(found[section], want[section], name)
            for tensor in found["tensors"]:
                numpy.testing.assert_array_equal(values(again, tensor["name"]), values(file, tensor["name"]))
            with leq.Model(file, context=8) as ours, leq.Model(again, context=8) as read:
                for text in texts:
                    for special in (True, False):
                        self.assertEqual(read.tokenizer.encode(text, parse_special=special),
                                         ours.tokenizer.encode(text, parse_special=special), name)
                self.assertEqual((read.tokenizer.bos, read.tokenizer.eos), (ours.tokenizer.bos, ours.tokenizer.eos))


class Graphs(unittest.TestCase):
    def test_have_a_past_none_or_fixed_sizes(self):
        file = story("int4-g64")
        past = Graph(WORK.exported(file))
        self.assertEqual((len(past.inputs), len(past.outputs), past.outputs[0]), (15, 13, "logits"))
        alone = Graph(WORK.exported(file, "--no-past"))
        self.assertEqual(alone.inputs, ["input_ids", "attention_mask", "position_ids"])
        self.assertEqual(alone.outputs, ["logits"])
        self.assertEqual(Graph(WORK.exported(file, "--tokens", "16")).inputs, ["input_ids"])

    def test_quantize_inputs_as_the_file_says(self):
        file = story("int8", "g128")
        self.assertEqual(Graph(WORK.exported(file)).count("QuantizeLinear"), 0)
        graph = Graph(WORK.exported(file, "--inputs", "file"))
        self.assertEqual(graph.count("QuantizeLinear"), 6 * 4 + 1)  # four sites per layer, and the head

    def test_genai_folder_has_its_configuration_and_tokenizer(self):
        folder = WORK.exported(story("int4-g64"), "--target", "genai", "-c", "512")
        model = json.loads((folder / "genai_config.json").read_text())["model"]
        self.assertEqual((model["context_length"], model["vocab_size"], model["decoder"]["head_size"]), (512, 4096, 32))
        graph = Graph(folder)
        self.assertEqual((graph.count("GroupQueryAttention"), graph.count("MatMulNBits")), (6, 6 * 7 + 1))
        self.assertEqual(list(graph.stored["rotary.0.cosines"].dims), [512, 16])
        self.assertTrue((folder / "tokenizer.json").exists())

    def test_are_written_by_the_functions_too(self):
        folder = WORK.folder / "by function"
        written, notes = export_onnx(story("int3-g32"), folder, past=False)
        self.assertEqual((written.files, notes), (["model.onnx.data", "model.onnx"],
                                                  ["42 tensors of 2 and 3 bits take 4 bits in the graph"]))
        self.assertEqual(written.bytes, sum(path.stat().st_size for path in folder.iterdir()))
        with self.assertRaises(leq.SettingError):
            export_onnx(story("int3-g32"), folder, opset=20)
        plain = WORK.folder / "plain, by function"
        export_huggingface(story("int8"), plain)
        self.assertTrue((plain / "config.json").exists())


class Refusals(unittest.TestCase):
    def refused(self, words, *parts):
        folder = WORK.folder / "refused" / "new"
        status, said = run(*words, "-o", folder)
        self.assertEqual(status, 1)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertTrue(said.startswith("leq-export: error: "), said)
        for part in parts:
            self.assertIn(part, said)
        self.assertFalse(folder.exists(), said)

    def test_of_targets_name_the_tensor_or_the_setting(self):
        for kind, act, words, *parts in (
                ("uint4-g64", "none", "--target tensorrt", "layers.0.q", "zero points"),
                ("int4-g32", "none", "--target tensorrt", "layers.0.q", "64 or 128"),
                ("int8-g64", "none", "--target tensorrt", "layers.0.q", "int8-g64"),
                ("int8", "row", "--target tensorrt --inputs file", "layers.0.q", "act row", "tensorrt"),
                ("int4-g64", "none", "--target nnapi --tokens 8", "layers.0.q", "8-bit"),
                ("f32", "none", "--target nnapi --tokens 8", "layers.0.q", "f32", "nnapi"),
                ("int8", "g128", "--target nnapi --tokens 8", "layers.0.q", "act g128", "nnapi"),
                ("int8", "g128", "--target nnapi --tokens 8 --inputs f32", "--inputs", "nnapi"),
                ("int8", "g128", "--target nnapi", "--tokens", "nnapi"),
                ("int8", "none", "--target genai --tokens 8", "--tokens", "genai"),
                ("int8", "none", "--target genai --no-past", "past", "genai"),
                ("int8", "none", "--tokens 5000", "--tokens", "1024"),
                ("int8", "none", "--tokens 1048576 -c 1048576", "--tokens 1048576: the mask"),
                ("int8", "none", "--target genai -c 16777217", "--ctx-size: expected a whole number"),
                ("int8", "online", "--inputs file", "layers.0.q", "online"),
                ("int8", "none", "--target coreml", "coreml", "onnxruntime | tensorrt | nnapi | genai"),
                ("int8", "none", "--opset 20", "--opset", "21..24"),
                ("int8", "none", "--opset 25", "--opset"),
                ("int8", "none", "--safetensors --inputs f32", "--inputs does not apply"),
                ("int8", "none", "--safetensors --no-past", "--past applies to ONNX graphs only")):
            self.refused([story(kind, act), *words.split()], *parts)

    def test_of_tables_that_no_machine_holds(self):
        with self.assertRaisesRegex(leq.SettingError, "-c 1099511627776: tables of cosines"):
            export_onnx(story("int8"), WORK.folder / "none", target="genai", context=1 << 40)

    def test_of_compressed_tensors(self):
        for kind, act, *parts in (("int8", "g128", "layers.0.q: act g128"), ("f32", "none", "layers.0.q: type f32"),
                                  ("uint4-g32", "none", "layers.0.q: type uint4-g32"),
                                  ("int4-g128", "none", "layers.0.down: 704 columns", "choose a group of 64")):
            self.refused([story(kind, act), "--compressed-tensors"], *parts)
        if (SHARED / "mistral-tiny").is_dir():
            file = WORK.quantized(SHARED / "mistral-tiny", "--type", "int4-g32", "--act", "none")
            self.refused([file, "--compressed-tensors"], "columns are no multiple", "quantize to int8, or write floats")

    def test_of_layers_of_other_kinds(self):
        for name in ("qwen35-tiny", "qwen3moe-tiny"):
            if (SHARED / name).is_dir():
                file = WORK.quantized(SHARED / name, "--type", "int8", "--act", "none")
                self.refused([file], "layer 0: exported graphs hold softmax attention and dense MLPs")
                self.refused([file, "--compressed-tensors"], "layer 0: compressed-tensors are")
        file = WORK.quantized(FAMILIES / "gpt-oss", "--type", "f32", "--act", "none")
        self.refused([file], "layer 0: exported graphs hold softmax attention and dense MLPs")
        file = WORK.quantized(FAMILIES / "muse-glimmer", "--type", "f32", "--act", "none")
        self.refused([file, "--safetensors"], "Muse Glimmer: ", "are not written back")

    def changed(self, name, **keys):
        """The storyteller's checkpoint with other keys in config.json, as a .leq file."""
        folder = WORK.folder / name
        shutil.copytree(STORY, folder, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **keys}))
        return WORK.quantized(folder, "--type", "int8", "--act", "none")

    def test_of_queries_that_are_scaled_by_position(self):
        file = self.changed("scaled", model_type="ministral3", architectures=["Ministral3ForCausalLM"], head_dim=32,
                            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                             "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                             "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.1})
        self.refused([file], "layer 0: queries are scaled by their positions")

    def test_of_heads_that_genai_does_not_run(self):
        file = self.changed("small heads", num_attention_heads=32, num_key_value_heads=16, head_dim=8)
        self.refused([file, "--target", "genai"], "head_dim 8", "multiple of 16", "--target onnxruntime")
        Graph(WORK.exported(file))


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = WORK.folder / self.id()
        self.folder.mkdir()

    def failed(self, *words):
        status, said = run(*words)
        self.assertEqual(status, 1)
        self.assertEqual(said.count("\n"), 1, said)
        return said

    def test_files_that_are_none(self):
        out = self.folder / "out"
        damaged = self.folder / "damaged.leq"
        data = bytearray(story("int8").read_bytes())
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data)
        cut, gguf, text = self.folder / "cut.leq", self.folder / "x.gguf", self.folder / "text\x1b[1m.leq"
        cut.write_bytes(data[:len(data) // 3])
        gguf.write_bytes(b"GGUF\3\0\0\0")
        text.write_text("no model")
        for path, part in ((damaged, "layers."), (cut, "cut.leq"), (gguf, "is a GGUF file"), (text, "text\\x1b[1m.leq"),
                           (STORY, "is a checkpoint folder"), (self.folder, "without config.json"),
                           (self.folder / "none", "no such file or folder"), ("/dev/null", "/dev/null")):
            self.assertIn(part, self.failed(path, "-o", out))
            self.assertFalse(out.exists())

    def test_words(self):
        file = story("int8")
        self.assertIn("a model must be given", self.failed("-o", "x"))
        self.assertIn("missing option -o, --output", self.failed(file))
        self.assertIn("unexpected argument", self.failed(file, "b", "-o", "x"))
        self.assertIn("unknown option --frobnicate;", self.failed(file, "-o", "x", "--frobnicate"))
        self.assertIn("--tokens: expected a whole number", self.failed(file, "-o", "x", "--tokens", "many"))

    def test_the_environment_sets_options(self):
        os.environ.update(LEQ_ARG_OUTPUT=str(self.folder / "out"), LEQ_ARG_PAST="off", LEQ_ARG_TOKENS="4")
        try:
            self.assertEqual(run(story("int8"), "--tokens", "8")[0], 0)
            os.environ["LEQ_ARG_PAST"] = "perhaps"
            self.assertIn("LEQ_ARG_PAST: expected 1 | 0", self.failed(story("int8")))
        finally:
            for name in ("OUTPUT", "PAST", "TOKENS"):
                del os.environ["LEQ_ARG_" + name]
        graph = Graph(self.folder / "out")
        self.assertEqual(graph.model.graph.input[0].type.tensor_type.shape.dim[1].dim_value, 8)

    def test_folders_that_cannot_be_written(self):
        file = story("int8")
        (self.folder / "file").write_text("kept")
        self.assertIn("it is a file", self.failed(file, "-o", self.folder / "file"))
        self.assertEqual((self.folder / "file").read_text(), "kept")
        (self.folder / "link").mkdir()
        (self.folder / "link" / "model.onnx.data").symlink_to(self.folder / "file")
        self.assertIn("is a link to", self.failed(file, "-o", self.folder / "link"))
        self.assertEqual((self.folder / "file").read_text(), "kept")
        shutil.copy(file, self.folder / "model.onnx")
        self.assertIn("is read here", self.failed(self.folder / "model.onnx", "-o", self.folder))
        self.assertEqual((self.folder / "model.onnx").read_bytes(), file.read_bytes())

    def test_a_failed_export_leaves_no_part_of_a_file(self):
        for words, last in (([], "model.onnx"), (["--safetensors"], "config.json")):
            out = self.folder / f"out{len(words)}"
            self.assertEqual(run(story("int8"), "-o", out, *words)[0], 0)
            before = {path.name: path.read_bytes() for path in out.iterdir() if path.name != last}
            for folder in (out, self.folder / "new/in/new"):
                made = subprocess.run([sys.executable, "-m", "leq.export.cli", story("int8"), "-o", folder, *words],
                                      capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(
                                          resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
                self.assertEqual((made.returncode, made.stderr.count("\n")), (1, 1), made.stderr)
                self.assertRegex(made.stderr, f"leq-export: error: {folder}/model.[.a-z]+: File too large")
            self.assertFalse((self.folder / "new").exists())
            # Without the last file the folder is incomplete; the others are those of the earlier export.
            self.assertEqual({path.name: path.read_bytes() for path in out.iterdir()}, before)


if __name__ == "__main__":
    unittest.main()
