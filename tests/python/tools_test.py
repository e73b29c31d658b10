"""What the Python package gives is what the tools give, to the bit."""

import json
import pathlib
import subprocess
import threading
import unittest
import urllib.request
from importlib.util import find_spec

import leq
import numpy
from story import PATH, PROMPT, STORY, TOOLS, WORK, open_model, setUpModule, tearDownModule, tool  # noqa: F401


class Server:
    """leq-server while a with block runs."""

    def __init__(self, path, *flags):
        self.process = subprocess.Popen([TOOLS / "leq-server", "-m", path, "--port", "0", "-t", "2", *flags],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "http://" in line:
                self.address = "http://" + line.split("http://")[1].split()[0].rstrip(",.;/")
                break
        self.reader = threading.Thread(target=self.process.stderr.read)
        self.reader.start()

    def post(self, path, body):
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=120))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()


class SameAsTheTools(unittest.TestCase):
    def test_text_of_leq_run(self):
        with open_model() as model:
            for settings, flags in (({"temperature": 0}, ["--temp", 0]), ({"seed": 7}, ["-s", 7]),
                                    ({"seed": 8, "top_k": 5, "repeat_penalty": 1.2},
                                     ["-s", 8, "--top-k", 5, "--repeat-penalty", 1.2])):
                expected = tool("leq-run", "-m", PATH, "--raw", "-p", PROMPT, "-n", 48, "--no-display-prompt",
                                *flags)
                self.assertEqual(model.generate(PROMPT, max_tokens=48, **settings).text.strip(),
                                 expected.strip())

    def test_perplexity_of_leq_perplexity(self):
        text = (STORY / "heldout.txt").read_text()
        with open_model() as model:
            found = model.perplexity(text, window=128, chunks=4)
        expected = json.loads(tool("leq-perplexity", "-m", PATH, "-f", STORY / "heldout.txt", "-c", 128,
                                   "--chunks", 4, "-o", "json"))
        self.assertEqual(found.ppl, expected["ppl"])
        self.assertEqual(found.nll, expected["nll"])
        self.assertEqual(found.stderr, expected["stderr"])
        self.assertEqual(found.scored, expected["scored"])

    def test_file_of_leq_quantize(self):
        made = pathlib.Path(WORK.name) / "python.leq"
        steps, lines = [], []
        result = leq.quantize(STORY, made, type="int8", threads=2,
                              progress=lambda work, done, total: steps.append((done, total)),
                              say=lines.append)
        self.assertEqual(made.read_bytes(), PATH.read_bytes())
        self.assertEqual(steps[-1][0], steps[-1][1])
        self.assertEqual(result["file_bytes"], made.stat().st_size)
        self.assertIsNone(result["kl"])

    def test_recipe_auto_of_leq_quantize(self):
        text = (STORY / "heldout.txt").read_text()[:2500]
        folder = pathlib.Path(WORK.name)
        # A file says where its calibration text is from.
        (folder / "a text of the caller").write_text(text)
        subprocess.run([TOOLS / "leq-quantize", STORY, "-o", "tool.leq", "--recipe", "auto", "--target-bpw", "3.5",
                        "--samples", "2", "--length", "64", "--calibration", "a text of the caller", "--no-gate"],
                       check=True, capture_output=True, cwd=folder)
        leq.quantize(STORY, folder / "python.leq", recipe="auto", target_bpw=3.5, samples=2, length=64,
                     calibration=text)
        self.assertEqual((folder / "python.leq").read_bytes(), (folder / "tool.leq").read_bytes())

    @unittest.skipUnless(find_spec("safetensors"), "this Python has no safetensors")
    def test_codes_of_a_quantized_checkpoint_are_kept(self):
        from leq.export import export_huggingface
        folder = pathlib.Path(WORK.name)
        export_huggingface(PATH, folder / "packed", compressed=True, inputs="f32")
        tool("leq-quantize", folder / "packed", "-o", folder / "tool.leq")
        leq.quantize(folder / "packed", folder / "python.leq")
        self.assertEqual((folder / "python.leq").read_bytes(), (folder / "tool.leq").read_bytes())
        with open_model() as model, leq.Model(folder / "python.leq", context=64) as kept:
            self.assertEqual(kept.generate(PROMPT, max_tokens=8, temperature=0).text,
                             model.generate(PROMPT, max_tokens=8, temperature=0).text)

    def test_inspect_of_leq_inspect(self):
        self.assertEqual(leq.inspect(PATH), json.loads(tool("leq-inspect", PATH, "--json")))

    def test_receipt_of_leq_run(self):
        file = pathlib.Path(WORK.name) / "receipt.json"
        tool("leq-run", "-m", PATH, "-p", PROMPT, "-n", 40, "-s", 7, "--receipt", file)
        with open_model() as model:
            reply = model.generate(PROMPT, max_tokens=40, seed=7, receipt=True)
            self.assertEqual(json.loads(reply.receipt), json.loads(file.read_text()))
            self.assertIsNone(model.check_receipt(file.read_text()))
            other = json.loads(reply.receipt)
            other["tokens"][5] += 1
            found = model.check_receipt(json.dumps(other))
            self.assertEqual((found.place, found.found, found.expected, found.logits),
                             (5, reply.tokens[5], other["tokens"][5], False))
        file.write_text(reply.receipt)
        self.assertIn("verified", tool("leq-inspect", PATH, "--check-receipt", file))

    def test_chat_and_embedding_of_leq_server(self):
        request = {"messages": [{"role": "user", "content": "Tell a story"}], "max_tokens": 12, "seed": 5,
                   "logprobs": True}
        with Server(PATH, "--embeddings") as server, open_model() as model:
            expected = server.post("/v1/chat/completions", request)["choices"][0]
            self.assertEqual(model.create_chat_completion(**request)["choices"][0], expected)
            expected = server.post("/v1/embeddings", {"input": "a small dog"})["data"][0]["embedding"]
            found = model.create_embedding("a small dog")["data"][0]["embedding"]
            numpy.testing.assert_allclose(found, expected, atol=1e-6)

    def test_tokens_of_leq_inspect(self):
        text = "Once upon a time, there was \U0001f600 é"
        file = pathlib.Path(WORK.name) / "text"
        file.write_text(text)
        with open_model() as model:
            ids = model.tokenizer.encode(text, add_special_tokens=False, parse_special=False)
            self.assertEqual(ids, json.loads(tool("leq-inspect", PATH, "--tokenize", file)))
            self.assertEqual(model.tokenizer.decode(ids).strip(), text)

    def test_divergence_of_leq_perplexity(self):
        text = STORY / "heldout.txt"
        base, base_file = pathlib.Path(WORK.name) / "f32.leq", pathlib.Path(WORK.name) / "base.kl"
        tool("leq-quantize", STORY, "-o", base, "--type", "f32")
        measure = ["-f", text, "-c", 128, "--chunks", 2, "--kl-divergence-base", base_file, "-o", "json"]
        tool("leq-perplexity", "-m", base, *measure)
        expected = json.loads(tool("leq-perplexity", "-m", PATH, *measure, "--kl-divergence"))
        with open_model() as model, leq.Model(base, context=256, threads=2) as f32:
            found = model.kl(f32, text.read_text(), window=128, chunks=2)
        # The file of the base holds rounded distributions.
        self.assertAlmostEqual(found.kl_mean, expected["kl_mean"], delta=1e-6)
        self.assertEqual(found.ppl, expected["ppl"])


if __name__ == "__main__":
    unittest.main()
