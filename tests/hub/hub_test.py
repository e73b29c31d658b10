#!/usr/bin/env python3
"""leq against a server that speaks the hub's API (fake_hub.py): only HF_ENDPOINT differs from the real hub. The oracle of
the cache's layout is huggingface_hub, without which its tests are skipped.

hub_test.py TOOLS SOURCE WRITE_GGUF [unittest's arguments]"""
import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import fake_hub

TOOLS, SOURCE, WRITE_GGUF = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
STORYTELLER = SOURCE / "examples" / "storyteller"
CHECKPOINT = {
    name: (STORYTELLER / name).read_bytes()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
}
HAS_CLIENT = importlib.util.find_spec("huggingface_hub") is not None


def gguf_file():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([WRITE_GGUF, STORYTELLER, f"{folder}/x.gguf"], check=True)
        return pathlib.Path(folder, "x.gguf").read_bytes()


class HubCase(unittest.TestCase):
    gguf = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.hub = fake_hub.FakeHub()
        self.addCleanup(self.hub.close)
        extra = {".gitattributes": b"x", "README.md": b"a story", "original/consolidated.00.pth": b"x" * 1000,
                 "consolidated.safetensors": b"x" * 1000}
        self.hub.repositories["tales/Story-5M"] = fake_hub.Repository({**CHECKPOINT, **extra})
        self.models = self.folder / "models"
        self.cache = self.folder / "hf" / "hub" / "models--tales--Story-5M"

    def environment(self, more={}):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "LEQ_", "HUGGING"))}
        return {**kept, "HOME": str(self.folder), "HF_HOME": str(self.folder / "hf"), "LEQ_MODELS": str(self.models),
                "HF_ENDPOINT": self.hub.url, "no_proxy": "*", **more}

    @contextlib.contextmanager
    def serving(self, *words):
        """The port of `leq serve` with these words, and what it says until it listens."""
        with subprocess.Popen([TOOLS / "leq", "serve", *words, "--port", "0"], text=True, stderr=subprocess.PIPE,
                              env=self.environment()) as server:
            try:
                said = ""
                for line in server.stderr:
                    said += line
                    if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                        break
                yield found[1], said
            finally:
                server.terminate()
                server.stderr.read()

    def leq(self, *words, env={}, status=0, command="leq"):
        run = subprocess.run([TOOLS / command, *words], capture_output=True, text=True, env=self.environment(env),
                             stdin=subprocess.DEVNULL, timeout=300)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        return run

    def refused(self, *words, env={}):
        """The one line of an error."""
        run = self.leq(*words, env=env, status=1)
        lines = [line for line in run.stderr.splitlines() if ": error: " in line]
        self.assertEqual(len(lines), 1, run.stderr)
        return lines[0]

    def pull(self, *words, **more):
        return self.leq("pull", "tales/Story-5M", *words, **more)

    def blob(self):
        return self.cache / "blobs" / hashlib.sha256(CHECKPOINT["model.safetensors"]).hexdigest()

    def kept(self, tag="int8-g128"):
        return self.models / f"tales--Story-5M--{tag}.leq"

    def add_gguf(self):
        HubCase.gguf = HubCase.gguf or gguf_file()
        self.hub.repositories["tales/Story-5M-GGUF"] = fake_hub.Repository(
            {"README.md": b"x", "Story-5M-Q4_K_M.gguf": HubCase.gguf, "Story-5M-F32.gguf": HubCase.gguf,
             "mmproj-F16.gguf": b"x"})


class OneCommand(HubCase):
    def test_a_reply_by_name(self):
        run = self.leq("run", "tales/Story-5M", "--raw", "-p", "Once upon a time", "-n", "12", "--temp", "0")
        self.assertTrue(run.stdout.startswith("Once upon a time"), run.stdout)
        self.assertRegex(run.stderr, r"(?s)quantizing tales/Story-5M:int8-g128, once: [0-9.]+ MB, .*\d+ s.*, while it is downloaded, "
                         r"without calibration text"
                         r".*\nquantized tales/Story-5M:int8-g128: [0-9.]+ MB in [0-9.]+ s")
        requests = len(self.hub.requests)
        again = self.leq("run", "tales/Story-5M", "--raw", "-p", "Once upon a time", "-n", "12", "--temp", "0")
        self.assertEqual(again.stdout, run.stdout)
        self.assertEqual(len(self.hub.requests), requests, "the second run needs no network")
        # The same file as by hand.
        by_hand = self.folder / "x.leq"
        self.leq("quantize", str(STORYTELLER), "-o", str(by_hand), "--type", "int8-g128")
        written = self.leq("run", "-m", str(by_hand), "--raw", "-p", "Once upon a time", "-n", "12", "--temp", "0")
        self.assertEqual(written.stdout, run.stdout)

    def test_names(self):
        self.pull()
        for words in (["tales/Story-5M"], ["tales/story-5m:INT8-G128"], ["hf.co/tales/Story-5M"],
                      ["https://huggingface.co/tales/Story-5M:int8-g128"], ["-hf", "tales/Story-5M"],
                      ["-m", "tales/Story-5M"], [str(self.kept())], ["tales--Story-5M--int8-g128.leq"]):
            run = self.leq(*words, "-p", "Once", "-n", "1", "-v", command="leq-run")
            self.assertIn("5.5 M parameters", run.stderr, words)
        run = self.leq("run", "tales/Story-5M", "Once", "-n", "1", "-v", env={"LEQ_ARG_MODEL": "/nothing.leq"})
        self.assertIn("5.5 M parameters", run.stderr)
        text = str(STORYTELLER / "heldout.txt")
        by_name = self.leq("perplexity", "tales/Story-5M", "-f", text, "--window", "64", "--chunks", "2")
        by_file = self.leq("perplexity", "-m", str(self.kept()), "-f", text, "--window", "64", "--chunks", "2")
        self.assertEqual(re.findall("[0-9]+[.][0-9]{3,}", by_name.stdout), re.findall("[0-9]+[.][0-9]{3,}", by_file.stdout))
        self.assertIn("both name a model", self.refused("perplexity", "x.leq", "-m", str(self.kept()), "-f", text))
        self.assertIn("-m and -hf both name a model",
                      self.refused("run", "-m", "x.leq", "-hf", "tales/Story-5M"))
        self.assertIn("no model of this name", self.refused("run", "Why is the sky blue?"))
        self.assertIn("no model: name one", self.refused("run"))

    def test_every_tool_downloads_by_name(self):
        bench = ["-p", "4", "-n", "1", "-r", "1"]
        self.assertIn("quantizing", self.leq("bench", "tales/Story-5M", *bench).stderr)
        self.assertIn("int8-g128", self.leq("bench", "hf.co/tales/Story-5M", *bench).stdout)
        self.assertIn("bf16", self.leq("bench", "-hf", "tales/Story-5M:bf16", *bench).stdout)
        self.assertIn("int4-g32", self.leq("inspect", "tales/Story-5M:int4-g32").stdout)
        self.assertIn("int8-g64", self.leq("show", "-hf", "tales/Story-5M", "--recipe", "int8-g64").stdout)
        self.assertIn("leave one out", self.refused("bench", "x.leq", "-m", "y.leq"))
        self.assertIn("no model of this name", self.refused("bench", "nothing"))
        self.assertIn("no model of this name", self.refused("show", "nothing"))

    def test_programs_of_the_python_package(self):
        """They get files and folders for names."""
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("leq-compare", "leq-export"):
            (programs / name).write_text('#!/bin/sh\necho "$0" "$@"\n')
            (programs / name).chmod(0o755)
        path = {"PATH": "%s:%s" % (programs, os.environ["PATH"])}
        snapshot = self.cache / "snapshots" / self.hub.repositories["tales/Story-5M"].commit
        said = self.leq("compare", "tales/Story-5M", "-f", "x y", env=path).stdout
        self.assertEqual(said, f"{programs}/leq-compare {snapshot} -f x y\n")
        self.assertTrue((snapshot / "model.safetensors").exists())
        said = self.leq("export", "tales/Story-5M", "-o", "x", env=path).stdout
        self.assertEqual(said, f"{programs}/leq-export {self.kept()} -o x\n")
        self.assertEqual(self.leq("export", "--help", env=path).stdout, f"{programs}/leq-export --help\n")
        self.assertIn("no model of this name", self.refused("export", "nothing", env=path))
        self.assertIn("make python", self.refused("export", "--help"))

    def test_quantize_by_name(self):
        file = self.folder / "x.leq"
        self.leq("quantize", "tales/Story-5M", "-o", str(file), "--type", "int8")
        by_hand = self.folder / "y.leq"
        self.leq("quantize", str(STORYTELLER), "-o", str(by_hand), "--type", "int8")
        reply = [self.leq("run", str(f), "--raw", "-p", "Once", "-n", "9", "--temp", "0").stdout for f in (file, by_hand)]
        self.assertEqual(*reply)

    def test_files_that_are_fetched(self):
        self.pull()
        snapshot = self.cache / "snapshots" / self.hub.repositories["tales/Story-5M"].commit
        self.assertEqual({p.name for p in snapshot.iterdir()}, set(CHECKPOINT))
        for name, data in CHECKPOINT.items():
            self.assertEqual((snapshot / name).read_bytes(), data)

    def test_list_show_and_remove(self):
        self.assertIn("no models", self.leq("ls").stderr)
        self.pull()
        self.pull("--recipe", "q4_k")
        (self.models / "broken.leq").write_bytes(b"x")
        commit = self.hub.repositories["tales/Story-5M"].commit
        rows = json.loads(self.leq("ls", "--json").stdout)
        self.assertEqual([row["name"] for row in rows], ["broken", "tales/Story-5M:int8-g128", "tales/Story-5M:q4_k"])
        self.assertIn("error", rows[0])
        self.assertEqual([row["type"] for row in rows[1:]], ["int8-g128", "q4_k"])
        self.assertEqual(rows[1]["bytes"], self.kept().stat().st_size)
        self.assertEqual(rows[1]["origin"], "tales/Story-5M@" + commit)
        table = self.leq("ls").stdout.splitlines()
        self.assertRegex(table[0], r"^NAME +SIZE +TYPE +ORIGIN$")  # no KL was measured
        self.assertTrue(all("kl" not in row for row in rows))
        self.assertEqual(len(table), 4)
        self.assertIn("int8-g128", self.leq("show", "tales/Story-5M:int8-g128").stdout)
        self.assertIn("name one of them: tales/Story-5M:int8-g128, tales/Story-5M:q4_k", self.refused("rm", "tales/Story-5M"))
        removed = self.leq("rm", "tales/Story-5M:q4_k")
        self.assertIn(str(self.cache), removed.stderr)
        self.assertFalse(self.kept("q4_k").exists())
        self.leq("rm", "tales/Story-5M", "--downloads")
        self.assertFalse(self.kept().exists() or self.cache.exists())
        self.assertIn("no such model", self.refused("rm", "tales/Story-5M"))

    def test_show_of_what_is_not_here(self):
        shown = self.leq("show", "tales/Story-5M").stdout
        whole = sum(len(data) for data in CHECKPOINT.values())
        self.assertRegex(shown, r"(?s)^tales/Story-5M: on the hub, not here; `leq pull tales/Story-5M` downloads it\n"
                         r"commit    c0ffee0+\nlicense   apache-2\.0\ndownload  [0-9.]+ MB in 5 files, quantized to int8-g128")
        told = json.loads(self.leq("show", "tales/Story-5M", "--json").stdout)
        self.assertEqual((told["download_bytes"], told["license"]), (whole, "apache-2.0"))
        self.assertEqual({file["name"]: file["bytes"] for file in told["files"]},
                         {name: len(data) for name, data in self.hub.repositories["tales/Story-5M"].files.items()})
        self.assertEqual(self.hub.store_requests, [], "nothing is downloaded")
        self.assertIn("no network", self.refused("show", "tales/Story-5M", env={"HF_ENDPOINT": "http://127.0.0.1:9"}))
        self.assertIn("HF_HUB_OFFLINE", self.refused("show", "tales/Story-5M", env={"HF_HUB_OFFLINE": "1"}))
        self.assertIn("no GGUF file", self.refused("show", "tales/Story-5M:Q9_K"))
        self.pull()
        self.assertIn("5,", self.leq("show", "tales/Story-5M").stdout)

    def test_short_names(self):
        names = {row["name"]: row for row in json.loads(self.leq("ls", "--names", "--json").stdout)}
        self.assertTrue(names["llama3.2:3b"]["default"] and names["llama3.2:3b"]["gated"])
        self.assertFalse(names["llama3.2:1b"]["default"])
        self.assertRegex(self.leq("ls", "--names").stdout, r"\nllama3.2:3b +meta-llama/Llama-3.2-3B-Instruct +also llama3.2, gated\n")
        self.hub.repositories["Qwen/Qwen3-8B"] = fake_hub.Repository(CHECKPOINT)
        self.assertRegex(self.leq("run", "qwen3", "Once", "-n", "1").stderr,
                         "qwen3: qwen3:8b, Qwen/Qwen3-8B; there are qwen3:8b, qwen3:0.6b, ")
        self.assertNotIn("there are", self.leq("run", "qwen3", "Once", "-n", "1").stderr)
        for words in (["run", "gemma2", "x"], ["pull", "gemma2"], ["show", "gemma2"]):
            self.assertIn("leq does not run this family; take gemma3", self.refused(*words))

    def test_created_names(self):
        self.pull()
        file = self.folder / "Modelfile"
        file.write_text('FROM tales/Story-5M\nSYSTEM You tell stories.\nPARAMETER temperature 0\nPARAMETER num_predict 12\n'
                        "PARAMETER num_gpu 1\n")
        made = self.leq("create", "teller", "-f", str(file))
        self.assertIn("Modelfile:5: PARAMETER num_gpu: ", made.stderr)
        by_hand = self.leq("run", "tales/Story-5M", "-sys", "You tell stories.", "--temp", "0", "-n", "12", "A fox?")
        self.assertEqual(self.leq("run", "teller", "A fox?").stdout, by_hand.stdout)
        self.assertEqual(self.leq("run", "-m", "teller:latest", "-p", "A fox?").stdout, by_hand.stdout)
        shorter = self.leq("run", "teller", "-n", "3", "A fox?").stdout
        self.assertTrue(by_hand.stdout.startswith(shorter.strip()) and len(shorter) < len(by_hand.stdout))
        self.assertRegex(self.leq("ls").stdout, r"\nteller +tales/Story-5M with system, temperature 0, num_predict 12\n")
        self.assertEqual(self.leq("show", "teller").stdout,
                         'FROM tales/Story-5M\nSYSTEM """You tell stories."""\nPARAMETER temperature 0\nPARAMETER num_predict 12\n')
        # A name made of another one has all of it, and stays when that is removed.
        file.write_text("FROM teller\nPARAMETER num_predict 3\n")
        self.leq("create", "short", "-f", str(file))
        self.leq("cp", "teller", "copy")
        self.leq("rm", "teller")
        self.assertEqual(self.leq("run", "short", "A fox?").stdout, shorter)
        self.assertEqual(self.leq("run", "copy", "A fox?").stdout, by_hand.stdout)
        self.leq("cp", "tales/Story-5M", "story")
        self.assertEqual(self.leq("show", "story").stdout, "FROM tales/Story-5M:int8-g128\n")
        for text, expected in (("FROM nothing", "FROM nothing: no file or model"), ("FROM gemma2", "take gemma3"),
                               ("FROM tales/Story-5M\nPARAMETER top_k many", "Modelfile:2: PARAMETER top_k: expected a whole number"),
                               ("FROM ./x.leq", "no file or model")):
            file.write_text(text)
            self.assertIn(expected, self.refused("create", "bad", "-f", str(file)))
        self.leq("cp", "story", "later:latest")
        self.assertEqual(self.leq("show", "later").stdout, self.leq("show", "story").stdout)
        self.leq("rm", "later:latest")
        self.assertIn("is the name of a model", self.refused("cp", "story", "tales--Story-5M--int8-g128"))
        self.assertIn("no such model", self.refused("cp", "nothing", "x"))
        self.assertEqual(sorted(p.name for p in self.models.glob("*.modelfile")),
                         ["copy.modelfile", "short.modelfile", "story.modelfile"])
        # Names of a file, and of a model that is removed.
        own = self.folder / "own.leq"
        shutil.copy(self.kept(), own)
        self.leq("cp", str(own), "byfile")
        self.assertEqual(self.leq("show", "byfile").stdout, f"FROM {own.resolve()}\n")
        shutil.move(own, self.models / "own.leq")
        self.leq("cp", "own", "second")
        self.assertIn("names that stand for it, which `leq rm` removes too: second\n", self.leq("rm", "own").stderr)
        self.assertIn("'second': stands for 'own', of which there is no model or file", self.refused("run", "second", "A fox?"))
        self.assertIn("too: copy, short, story\n", self.leq("rm", "tales/Story-5M:int8-g128").stderr)

    def test_created_names_are_served(self):
        self.pull()
        file = self.folder / "Modelfile"
        teller = {"system": "You tell stories.\nOf a \\n fox.", "temperature": 0, "num_predict": 12, "stop": ["dragon", "\n\n"]}
        for name, more in (("teller", "num_ctx 512"), ("dull", "num_predict -2")):
            file.write_text("FROM tales/Story-5M\nSYSTEM \"\"\"" + teller["system"] + '"""\nPARAMETER temperature 0\n'
                            'PARAMETER num_predict 12\nPARAMETER stop "dragon"\nPARAMETER stop """\n\n"""\nPARAMETER ' + more + "\n")
            self.leq("create", name, "-f", str(file))
        ask = {"messages": [{"role": "user", "content": "A fox?"}], "stream": False}

        def post(port, path, body):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode())
            return json.load(urllib.request.urlopen(request))

        def ids(port):
            return [one["id"] for one in json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models"))["data"]]

        told = {"messages": [{"role": "system", "content": teller["system"]}, *ask["messages"]], "stream": False,
                "options": {key: teller[key] for key in ("temperature", "num_predict", "stop")}}
        with self.serving("tales/Story-5M") as (port, _):
            want = post(port, "/api/chat", told)["message"]["content"]
            prompt = post(port, "/apply-template", told)
            longer = post(port, "/api/chat", {**told, "options": {**told["options"], "num_predict": -1}})["message"]["content"]
        self.assertTrue(len(want) > 20 and longer.startswith(want) and len(longer) > len(want))
        for words, names, left_out in (([], ["dull", "tales/Story-5M:int8-g128", "teller"], True), (["teller"], ["teller"], False),
                                       (["teller:latest", "dull"], ["teller", "dull"], True)):
            with self.serving(*words) as (port, said):
                self.assertEqual("teller: without its num_ctx: these apply where it is served alone" in said, left_out, said)
                self.assertEqual("512 tokens of context" in said, not left_out, said)
                self.assertEqual(ids(port), names)
                self.assertEqual(post(port, "/apply-template", {**ask, "model": "teller"}), prompt)
                self.assertEqual(post(port, "/api/chat", {**ask, "model": "teller"})["message"]["content"], want)
                shown = post(port, "/api/show", {"model": "teller"})
                self.assertEqual(shown["system"], teller["system"])
                self.assertRegex(shown["parameters"], r"^temperature {20}0\nnum_predict {20}12\nstop {27}\"dragon\"\n")
                self.assertEqual(shown["modelfile"], self.leq("show", "teller").stdout)
                if left_out:
                    self.assertEqual(post(port, "/api/chat", {**ask, "model": "dull"})["message"]["content"], longer)
                    # What another name was asked is in the one prefix cache, and one model is loaded.
                    metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
                    self.assertIn("leq:models_loaded 1\n", metrics)
                if not words:
                    file.write_text("FROM teller\nSYSTEM Another.\n")
                    self.leq("create", "late", "-f", str(file))
                    self.assertEqual(post(port, "/api/show", {"model": "late"})["system"], "Another.")
                    self.leq("rm", "late")
                    self.assertNotIn("late", ids(port))
        with self.serving("teller", "--temp", "0.5", "-sys", "By the flag.") as (port, _):
            self.assertIn("By the flag.", post(port, "/apply-template", ask)["prompt"])
        self.leq("rm", "tales/Story-5M")
        with self.serving() as (port, said):
            self.assertIn("teller: not served, since no file of tales/Story-5M is here; `leq serve teller` makes it", said)
            self.assertEqual(ids(port), [])

    def test_parts_of_a_name(self):
        self.pull()
        file = self.folder / "Modelfile"
        file.write_text("FROM tales/Story-5M\nSYSTEM You tell stories.\nPARAMETER temperature 0.5\nPARAMETER stop \"a b\"\n")
        self.leq("create", "teller", "-f", str(file))
        self.assertEqual(self.leq("show", "teller", "--modelfile").stdout, self.leq("show", "teller").stdout)
        self.assertEqual(self.leq("show", "teller", "--system").stdout, "You tell stories.\n")
        self.assertEqual(self.leq("show", "--parameters", "teller").stdout,
                         "temperature" + 20 * " " + '0.5\nstop' + 27 * " " + '"a b"\n')
        template = json.loads(CHECKPOINT["tokenizer_config.json"])["chat_template"]
        for name in ("teller", "tales/Story-5M", self.kept()):
            self.assertEqual(self.leq("show", name, "--template").stdout.strip("\n"), template.strip("\n"))
        self.assertRegex(self.leq("show", "tales/Story-5M", "--modelfile").stdout, r"^FROM tales/Story-5M\n(PARAMETER \S+ \S+\n)*$")
        self.assertEqual(self.leq("show", "tales/Story-5M", "--system").stdout, "")
        self.assertIn("one part at a time", self.refused("show", "teller", "--system", "--template"))
        self.assertIn("has no licence", self.refused("show", "teller", "--license"))
        self.leq("rm", "tales/Story-5M", "--downloads")
        self.assertIn("tales/Story-5M: no such file; the model of that name on the Hugging Face hub", self.refused("show", "teller", "--template"))
        self.assertEqual(self.leq("show", "teller", "--system").stdout, "You tell stories.\n")

    def test_a_chat_in_place_of_a_model(self):
        self.pull()
        self.leq("run", "tales/Story-5M", "--chat", "fox", "-st", "-p", "A fox?", "-n", "3")
        self.assertIn("'fox': a chat, and no model: go on with `leq run MODEL --chat fox` (it was written with "
                      "tales--Story-5M--int8-g128.leq)", self.refused("run", "fox"))

    def test_one_name_of_a_type(self):
        self.models.mkdir()
        file = self.models / "mixed.leq"
        self.leq("quantize", str(STORYTELLER), "-o", str(file), "--type", "q4_k", "--tensor-type", "embed=f32",
                 "--method", "absmax")
        listed = json.loads(self.leq("ls", "--json").stdout)[0]["type"]
        told = json.loads(self.leq("show", "mixed", "--json").stdout)
        most = max(told["totals"], key=lambda name: told["totals"][name]["bytes"])
        self.assertNotEqual(most, told["type"], "the test wants a file whose most bytes have another type")
        self.assertEqual(listed, told["type"])
        self.assertIn(", " + listed + ", ", self.leq("run", "mixed", "Once", "-n", "1", "-v").stderr)
        self.assertIn("type " + listed + ", ", self.leq("inspect", "mixed").stdout)

    def test_a_recipe_is_measured(self):
        run = self.pull("--recipe", "q8")
        self.assertIn("gate", run.stderr)
        row = json.loads(self.leq("ls", "--json").stdout)[0]
        self.assertEqual(row["name"], "tales/Story-5M:q8")
        self.assertTrue(0 < row["kl"] < 0.005)
        self.assertRegex(self.leq("ls").stdout, r"^NAME +SIZE +TYPE +KL +ORIGIN\n.* 0\.00[0-9]{2} ")
        # Without a tag the file that is there is used, and the tag asks for another one.
        self.assertNotIn("quantizing", self.leq("run", "tales/Story-5M", "-p", "A", "-n", "1").stderr)
        self.assertIn("quantizing", self.leq("run", "tales/Story-5M:bf16", "-p", "A", "-n", "1").stderr)
        self.assertIn("no quantization", self.refused("run", "tales/Story-5M:Q9_K"))

    def test_a_newer_commit(self):
        self.pull()
        before = self.kept().stat()
        self.pull()
        self.assertEqual(self.kept().stat().st_mtime_ns, before.st_mtime_ns)
        self.hub.repositories["tales/Story-5M"].commit = "d" * 40
        self.pull()
        self.assertNotEqual(self.kept().stat().st_ino, before.st_ino)
        self.assertEqual((self.cache / "refs" / "main").read_text(), "d" * 40)
        self.assertEqual(len(self.hub.store_requests), 1, "the weights did not change")

    def test_serve(self):
        with self.serving("tales/Story-5M", "-c", "512") as (port, _):
            self.assertRegex(self.leq("ps", "--port", port).stdout, r"^tales/Story-5M:int8-g128  loaded")
        self.assertIn("leq serve", self.refused("ps", "--port", port))

    def test_serve_all(self):
        for line in ("no models yet; `leq pull Qwen/Qwen3-0.6B` adds one", ": 1 model, loaded when a request names it, within "):
            with self.serving("-c", "512") as (_, said):
                self.assertIn(line, said.splitlines()[0])
            self.pull()


class Listed(HubCase):
    """What `leq ls` prints is a name in every command."""

    def setUp(self):
        super().setUp()
        HubCase.gguf = HubCase.gguf or gguf_file()
        self.file = self.folder / "tale.gguf"
        self.file.write_bytes(HubCase.gguf)
        self.tale = self.folder / "Tale"
        self.tale.mkdir()
        for name, data in CHECKPOINT.items():
            (self.tale / name).write_bytes(data)

    def names(self):
        return [row["name"] for row in json.loads(self.leq("ls", "--json").stdout)]

    def ask(self, model, *words):
        return self.leq("run", str(model), "--raw", "-p", "once", "-n", "3", "--temp", "0", *words)

    def test_every_command_takes_a_listed_name(self):
        self.pull()
        self.ask(self.file)
        self.ask(self.tale)
        names = self.names()
        self.assertEqual(names, ["Tale:int8-g128", "tales/Story-5M:int8-g128", "tale"])
        text = self.folder / "text.txt"
        text.write_text("once upon a time " * 40)
        for name in [*names, "Tale", "tale"]:
            for words in (["run", name, "--raw", "-p", "once", "-n", "1"], ["show", name], ["inspect", name, "--verify"],
                          ["inspect", name, "--tokenize", str(text)], ["inspect", name, "--fit"],
                          ["bench", name, "-p", "4", "-n", "1", "-r", "1"],
                          ["perplexity", name, "-f", str(text), "--window", "64", "--chunks", "1"]):
                run = self.leq(*words)
                self.assertNotRegex(run.stderr, "convert|quantiz")
        for name in ("Tale:int8-g128", "tale.gguf"):
            self.assertIn("is quantized already", self.refused("quantize", name, "-o", str(self.folder / "x.leq")))
        for name in names:
            self.leq("rm", name)
        self.assertEqual(self.names(), [])
        self.assertTrue(self.file.exists() and self.tale.exists())

    def test_versions_of_a_gguf_file(self):
        self.ask(self.file)
        os.utime(self.file, (1, 1))
        self.ask(self.file)
        names = self.names()
        self.assertEqual(len(names), 2)
        for name in names:
            self.assertRegex(name, "^tale:[0-9a-f]{16}$")
            self.ask(name)
        line = self.refused("rm", "tale.gguf")
        self.assertTrue(all(name in line for name in names), line)
        self.assertEqual(self.names(), names, "nothing was removed")
        self.assertEqual(self.leq("rm", names[0]).stdout, f"removed {names[0]}\n")
        self.assertEqual(self.names(), ["tale"])
        self.leq("rm", "-f", "tale.gguf")
        self.assertEqual(self.names(), [])

    def test_a_gguf_file_of_the_models_folder(self):
        self.models.mkdir()
        kept = self.models / "Tale.F32.gguf"
        shutil.copy(self.file, kept)
        self.assertRegex(self.leq("ls").stdout, r"\nTale\.F32 +[0-9.]+ MB +f32 +GGUF file\n$")
        reply = self.ask("tale.f32").stdout
        self.assertEqual(self.ask(kept).stdout, reply)
        self.assertEqual(self.names(), ["Tale.F32"], "its conversion is no other model")
        self.leq("rm", "Tale.F32.gguf")
        self.assertEqual(self.names(), [])
        self.assertFalse(kept.exists())
        self.assertEqual(list((self.folder / ".cache" / "leq").glob("*.leq")), [])

    def test_a_checkpoint_folder(self):
        first = self.ask(self.tale)
        self.assertRegex(first.stderr, r"(?s)quantizing Tale:int8-g128, once: .*quantized Tale:int8-g128: ")
        row = json.loads(self.leq("ls", "--json").stdout)[0]
        self.assertEqual((row["name"], row["type"], row["origin"]), ("Tale:int8-g128", "int8-g128", str(self.tale.resolve())))
        again = self.leq("run", "-m", str(self.tale) + "/", "--raw", "-p", "once", "-n", "3", "--temp", "0")
        self.assertEqual(again.stdout, first.stdout)
        self.assertNotIn("quantiz", again.stderr)
        self.assertIn("quantizing Tale:bf16", self.ask(self.tale, "--recipe", "bf16").stderr)
        self.assertNotIn("quantiz", self.ask(self.tale).stderr)
        self.assertEqual(self.names(), ["Tale:bf16", "Tale:int8-g128"])
        self.assertIn("no quantization", self.refused("run", str(self.tale), "--recipe", "q99", "x"))
        # A file has a type already.
        model = str(self.models / "Tale--bf16.leq")
        for words in ([model], ["-m", model], ["-m", "Tale:bf16"], ["Tale:bf16"], [str(self.file)]):
            line = self.refused("run", *words, "--recipe", "q4", "-p", "x")
            self.assertIn("a file with a type of its own: leave the flag out", line)
            self.assertEqual("`leq quantize" in line, words[0].endswith(".gguf"), line)
            self.leq("run", *words, "-p", "x", "-n", "1", env={"LEQ_ARG_RECIPE": "q4"})
        self.assertIn("--hf-file x.gguf: is for", self.refused("run", str(self.file), "-hff", "x.gguf", "x"))
        os.utime(self.file)
        for name in [name for name in self.names() if "tale" in name]:
            self.leq("rm", name)
        # A folder whose files have changed, and another one of the same name.
        os.utime(self.tale / "model.safetensors", (1, 1))
        self.assertIn("quantizing Tale:int8-g128", self.ask(self.tale).stderr)
        other = self.folder / "other" / "Tale"
        shutil.copytree(self.tale, other)
        self.assertRegex(self.ask(other).stderr, "quantizing Tale-[0-9a-f]{8}:int8-g128")
        self.assertNotIn("quantiz", self.ask(other).stderr)
        self.assertNotIn("quantiz", self.ask(self.tale).stderr)
        self.assertEqual(len(self.names()), 3)

    def test_damaged_files_are_removed(self):
        self.pull()
        for name in ("cut", "parts-00001-of-00002", "parts-00002-of-00002", "none-00002-of-00003"):
            (self.models / (name + ".gguf")).write_bytes(HubCase.gguf[:5000])
        self.leq("rm", "cut", "parts")
        self.assertEqual([p.name for p in self.models.glob("*.gguf")], ["none-00002-of-00003.gguf"])
        self.kept().with_suffix(".leq.origin").write_bytes(b"")
        self.ask(self.tale)
        self.leq("rm", "tales/Story-5M")
        self.assertFalse(self.kept().exists())

    def test_a_snapshot_is_its_repository(self):
        self.pull()
        snapshot = self.cache / "snapshots" / self.hub.repositories["tales/Story-5M"].commit
        self.assertNotIn("quantiz", self.ask(snapshot).stderr)
        self.assertIn("quantizing tales/Story-5M:bf16", self.ask(snapshot, "--recipe", "bf16").stderr)
        self.assertEqual(self.names(), ["tales/Story-5M:bf16", "tales/Story-5M:int8-g128"])
        # One of another commit has another name.
        other = snapshot.parent / ("d" * 40)
        shutil.copytree(snapshot, other, symlinks=True)
        self.assertIn("quantizing tales/Story-5M@%s:int8-g128" % other.name, self.ask(other).stderr)
        self.assertNotIn("quantiz", self.ask(other).stderr)
        self.assertNotIn("quantiz", self.ask(snapshot).stderr)


class Revisions(HubCase):
    """Each is a model of its own."""

    def setUp(self):
        super().setUp()
        files = {**CHECKPOINT, "generation_config.json": b"{}"}
        self.hub.repositories["tales/Story-5M"].revisions = {"v2": fake_hub.Repository(files, "2" * 40),
                                                             "refs/pr/1": fake_hub.Repository(files, "3" * 40)}

    def ask(self, revision):
        return self.leq("run", "tales/Story-5M" + revision, "--raw", "-p", "once", "-n", "1").stderr

    def test_a_revision_is_another_model(self):
        self.pull()
        self.assertIn("no such revision", self.refused("run", "tales/Story-5M@v9", "-p", "once", "-n", "1"))
        for revision, name in (("@v2", "@v2"), ("@refs/pr/1", "@refs%2Fpr%2F1"), ("@" + "2" * 40, "@" + "2" * 40)):
            self.assertIn(f"quantizing tales/Story-5M{name}:int8-g128", self.ask(revision))
        requests = len(self.hub.requests)
        for revision in ("", "@main", ":int8-g128", "@v2", ":int8-g128@v2", "@v2:int8-g128", "@refs/pr/1", "@" + "2" * 40):
            self.assertNotIn("quantiz", self.ask(revision))
        self.assertEqual(len(self.hub.requests), requests)
        origins = {row["name"]: row["origin"][-1] for row in json.loads(self.leq("ls", "--json").stdout)}
        self.assertEqual(origins, {"tales/Story-5M:int8-g128": "0", "tales/Story-5M@v2:int8-g128": "2",
                                   "tales/Story-5M@refs%2Fpr%2F1:int8-g128": "3", f"tales/Story-5M@{'2' * 40}:int8-g128": "2"})
        self.leq("rm", "tales/Story-5M@v2")
        self.assertIn("tales/Story-5M@v2: on the hub, not here; `leq pull tales/Story-5M@v2`",
                      self.leq("show", "tales/Story-5M@v2").stdout)
        self.assertTrue(self.kept().exists())


class Gguf(HubCase):
    def setUp(self):
        super().setUp()
        self.add_gguf()

    def test_the_default_and_a_tag(self):
        run = self.leq("run", "-hf", "tales/Story-5M-GGUF", "--raw", "-p", "once", "-n", "4", "--temp", "0")
        self.assertTrue((self.models / "tales--Story-5M-GGUF--Q4_K_M.leq").exists(), run.stderr)
        row = json.loads(self.leq("ls", "--json").stdout)[0]
        self.assertEqual((row["name"], row["type"]), ("tales/Story-5M-GGUF:Q4_K_M", "f32"))  # its own numbers
        self.leq("pull", "hf.co/tales/Story-5M-GGUF:f32")
        self.assertTrue((self.models / "tales--Story-5M-GGUF--F32.leq").exists())
        self.assertIn("it has Q4_K_M, F32", self.refused("pull", "tales/Story-5M-GGUF:Q2_K"))

    def test_a_file(self):
        self.leq("run", "-hf", "tales/Story-5M-GGUF", "-hff", "Story-5M-F32.gguf", "-p", "once", "-n", "1")
        self.assertTrue((self.models / "tales--Story-5M-GGUF--F32.leq").exists())
        self.assertIn("no GGUF file x.gguf", self.refused("run", "-hf", "tales/Story-5M-GGUF", "-hff", "x.gguf"))

    def test_two_files_of_one_type(self):
        self.hub.repositories["tales/Two-GGUF"] = fake_hub.Repository(
            {"one-Q8_0.gguf": HubCase.gguf, "two-Q8_0.gguf": HubCase.gguf, "Case-of-two-F16.gguf": HubCase.gguf})
        names = ("one-Q8_0.gguf", "two-Q8_0.gguf", "Case-of-two-F16.gguf")
        for file in names:
            self.leq("pull", "tales/Two-GGUF", "-hff", file)
        requests = len(self.hub.requests)
        for words in (*(["tales/Two-GGUF", "-hff", file] for file in names), ["tales/Two-GGUF:two-Q8_0"]):
            self.leq("run", *words, "-p", "once", "-n", "1")
        self.assertEqual(len(self.hub.requests), requests, "they are here")
        files = {row["name"]: json.loads(pathlib.Path(row["path"] + ".origin").read_text())["file"]
                 for row in json.loads(self.leq("ls", "--json").stdout)}
        self.assertEqual(files, {"tales/Two-GGUF:Q8_0": "one-Q8_0.gguf", "tales/Two-GGUF:two-Q8_0": "two-Q8_0.gguf",
                                 "tales/Two-GGUF:F16": "Case-of-two-F16.gguf"})

    def test_nothing_to_run(self):
        self.hub.repositories["tales/Old"] = fake_hub.Repository({"config.json": b"{}", "pytorch_model.bin": b"x"})
        self.assertIn("neither *.safetensors", self.refused("pull", "tales/Old"))
        unknown = dict(CHECKPOINT)
        unknown["config.json"] = unknown["config.json"].replace(b'"llama"', b'"bloomy"')
        self.hub.repositories["tales/Other"] = fake_hub.Repository(unknown)
        self.assertIn("bloomy", self.refused("pull", "tales/Other"))
        self.assertEqual(self.hub.store_requests, [], "refused before the weights are downloaded")


class Failures(HubCase):
    def test_words_for_refusals(self):
        hub = self.hub
        self.assertRegex(self.refused("pull", "tales/Nothing"), "no such repository, or it is private.*HF_TOKEN")
        self.assertIn("no such revision", self.refused("pull", "tales/Story-5M@v9"))
        hub.repositories["tales/Story-5M"].gated = True
        self.assertRegex(self.refused("pull", "tales/Story-5M"), f"access must be granted .*{hub.url}/tales/Story-5M ")
        hub.repositories["tales/Story-5M"].private = "secret"
        self.assertIn("a token was sent", self.refused("pull", "tales/Story-5M", env={"HF_TOKEN": "wrong"}))
        self.assertIn("unsafe file name", self.unsafe("../../escape.json"))
        self.assertIn("unsafe file name", self.unsafe("/etc/passwd"))
        self.assertEqual(list(self.folder.rglob("escape.json")), [])

    def unsafe(self, name):
        self.hub.repositories["tales/Evil"] = fake_hub.Repository({**CHECKPOINT, name: b"x"})
        return self.refused("pull", "tales/Evil")

    def test_a_file_that_is_listed_and_missing(self):
        repository = self.hub.repositories["tales/Story-5M"]
        class Partial(dict):
            def __contains__(self, name):
                return name != "tokenizer.json" and dict.__contains__(self, name)
        repository.files = Partial(repository.files)
        self.assertIn("tokenizer.json: has no such file", self.refused("pull", "tales/Story-5M"))
        self.assertTrue((self.cache / ".no_exist" / repository.commit / "tokenizer.json").exists())

    def test_tokens(self):
        self.hub.repositories["tales/Story-5M"].private = "secret"
        (self.folder / "hf").mkdir()
        (self.folder / "hf" / "token").write_text("secret\n")
        self.pull()
        self.assertEqual({token for _, _, token, _ in self.hub.requests}, {"secret"})
        self.assertEqual({token for _, _, token, _ in self.hub.store_requests}, {None}, "the store gets no token")
        self.leq("rm", "tales/Story-5M", "--downloads")
        self.pull("-hft", "secret", env={"HF_TOKEN_PATH": "/nothing"})

    def test_busy(self):
        self.hub.busy = [(429, "1"), (503, None), (429, "0")]
        start = time.monotonic()
        self.pull()
        self.assertGreater(time.monotonic() - start, 1)
        self.hub.busy = [(429, "0")] * 5
        self.assertIn("limits the number of requests", self.refused("pull", "tales/Story-5M"))

    def test_cut_connections_are_resumed(self):
        whole = len(CHECKPOINT["model.safetensors"])
        self.hub.cut = [1000, 0, 500000]
        run = self.pull()
        ranges = [r for _, _, _, r in self.hub.store_requests]
        self.assertEqual(ranges, [None, "bytes=1000-", "bytes=1000-", "bytes=501000-"])
        self.assertEqual(self.blob().read_bytes(), CHECKPOINT["model.safetensors"])
        self.assertEqual(self.blob().stat().st_size, whole)

    def test_a_server_that_always_cuts(self):
        self.hub.cut = [2000] + [0] * 20
        line = self.refused("pull", "tales/Story-5M")
        self.assertIn("the same command continues", line)
        part = pathlib.Path(str(self.blob()) + ".incomplete")
        self.assertEqual(part.read_bytes(), CHECKPOINT["model.safetensors"][:2000])
        self.assertIn("what was downloaded of it has neither *.safetensors",
                      self.refused("pull", "tales/Story-5M", env={"HF_ENDPOINT": "http://127.0.0.1:9"}))
        self.hub.cut, self.hub.store_requests = [], []
        self.pull()
        self.assertEqual([r for _, _, _, r in self.hub.store_requests], ["bytes=2000-"])
        self.assertFalse(part.exists())

    def test_a_killed_download_is_resumed(self):
        self.hub.slow = 60
        part = pathlib.Path(str(self.blob()) + ".incomplete")
        with subprocess.Popen([TOOLS / "leq", "pull", "tales/Story-5M"], stderr=subprocess.DEVNULL,
                              env=self.environment()) as process:
            limit = time.monotonic() + 60
            while not (part.exists() and part.stat().st_size > 1000000) and time.monotonic() < limit:
                time.sleep(0.05)
            process.kill()
        self.hub.slow, self.hub.store_requests = 0, []
        have = part.stat().st_size
        self.assertGreater(have, 1000000)
        self.pull()
        self.assertEqual([r for _, _, _, r in self.hub.store_requests], ["bytes=%d-" % have])
        self.assertEqual(self.blob().read_bytes(), CHECKPOINT["model.safetensors"])

    def test_a_proxy(self):
        self.pull(env={"HF_ENDPOINT": "http://hub.invalid", "http_proxy": self.hub.url, "no_proxy": "localhost"})
        self.assertEqual(self.hub.proxied, len(self.hub.requests))
        self.assertGreater(self.hub.proxied, 5)

    def test_a_server_without_ranges(self):
        self.hub.cut, self.hub.no_ranges = [1000], True
        self.pull()
        self.assertEqual(self.blob().read_bytes(), CHECKPOINT["model.safetensors"])

    def test_a_wrong_hash(self):
        self.hub.wrong_bytes = True
        self.assertRegex(self.refused("pull", "tales/Story-5M"), "SHA-256 of the download: expected .*, found ")
        self.assertFalse(self.blob().exists() or pathlib.Path(str(self.blob()) + ".incomplete").exists())
        self.assertFalse(self.kept().exists())
        self.hub.wrong_bytes = False
        self.pull()

    def test_too_little_space(self):
        self.hub.claimed_bytes = 1 << 45
        line = self.refused("pull", "tales/Story-5M")
        self.assertRegex(line, r"needs [0-9.,]+ [A-Z]B .* only .* are free in .*HF_HOME")
        self.assertEqual(self.hub.store_requests, [])

    def test_more_bytes_than_promised(self):
        self.hub.claimed_bytes = 1000
        self.assertIn("expected 1000 bytes, found more", self.refused("pull", "tales/Story-5M"))

    def test_a_renamed_repository(self):
        self.hub.moved["tales/Story-Old"] = "tales/Story-5M"
        self.leq("run", "tales/Story-Old", "-p", "Once", "-n", "1")
        self.assertTrue((self.models / "tales--Story-Old--int8-g128.leq").exists())

    def test_no_network(self):
        dead = {"HF_ENDPOINT": "http://127.0.0.1:9"}
        self.assertRegex(self.refused("pull", "tales/Story-5M", env=dead),
                         "no network, or the hub does not answer: http://127.0.0.1:9: .*HF_HUB_OFFLINE=1")
        offline = {"HF_HUB_OFFLINE": "1"}
        self.assertIn("HF_HUB_OFFLINE", self.refused("pull", "tales/Story-5M", env=offline))
        self.pull()
        self.leq("rm", "tales/Story-5M")
        self.assertIn("cannot be reached", self.pull(env=dead).stderr)
        self.leq("rm", "tales/Story-5M")
        requests = len(self.hub.requests)
        self.pull(env=offline)
        self.leq("run", "tales/Story-5M:bf16", "--offline", "-p", "A", "-n", "1")
        self.assertEqual(len(self.hub.requests), requests)


def in_two_files(data):
    """The tensors of a file of safetensors in two, with their index."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    header.pop("__metadata__", None)
    names = sorted(header, key=lambda name: header[name]["data_offsets"])
    files, weight_map = {}, {}
    for part, own in enumerate((names[:len(names) // 2], names[len(names) // 2:])):
        file = "model-0000%d-of-00002.safetensors" % (part + 1)
        entries, bodies, at = {}, [], 0
        for name in own:
            begin, end = header[name]["data_offsets"]
            entries[name] = {**header[name], "data_offsets": [at, at + end - begin]}
            bodies.append(body[begin:end])
            at += end - begin
            weight_map[name] = file
        text = json.dumps(entries).encode()
        files[file] = len(text).to_bytes(8, "little") + text + b"".join(bodies)
    return {**files, "model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": weight_map}).encode()}


class WhileItDownloads(HubCase):
    def setUp(self):
        super().setUp()
        files = {**CHECKPOINT, **in_two_files(CHECKPOINT["model.safetensors"])}
        del files["model.safetensors"]
        self.parts = self.hub.repositories["tales/Parts-5M"] = fake_hub.Repository(files)
        self.last = "model-00002-of-00002.safetensors"

    def file_of(self, name):
        return self.models / (name.replace("/", "--") + "--int8-g128.leq")

    def part_of(self, name, file):
        blob = self.folder / "hf" / "hub" / ("models--" + name.replace("/", "--")) / "blobs" / self.hub.repositories[name].etag(file)
        return pathlib.Path(str(blob) + ".incomplete")

    def by_hand(self, name):
        """The file that is made when all has been downloaded."""
        commit = self.hub.repositories[name].commit
        snapshot = self.folder / "hf" / "hub" / ("models--" + name.replace("/", "--")) / "snapshots" / commit
        self.leq("quantize", str(snapshot), "-o", str(self.folder / "x.leq"), "--type", "int8-g128")
        return (self.folder / "x.leq").read_bytes()

    def written(self, process):
        """Bytes that a process has written into files of the models folder, which may have no name yet."""
        sizes = [0]
        try:
            for descriptor in pathlib.Path("/proc/%d/fd" % process.pid).iterdir():
                if os.readlink(descriptor).startswith(str(self.models)):
                    sizes.append(os.stat(descriptor).st_size)
        except OSError:  # it was closed meanwhile
            pass
        return max(sizes)

    def start(self, name):
        process = subprocess.Popen([TOOLS / "leq", "pull", name], stderr=subprocess.PIPE, text=True, env=self.environment())
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def await_writing(self, process):
        limit = time.monotonic() + 100
        while self.written(process) < 1 << 20:
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            self.assertLess(time.monotonic(), limit, "nothing is quantized before the end arrives")
            time.sleep(0.02)

    def test_it_is_quantized_before_the_end_has_arrived(self):
        for name, file in (("tales/Story-5M", "model.safetensors"), ("tales/Parts-5M", self.last)):
            whole = len(self.hub.repositories[name].files[file])
            event = threading.Event()
            self.addCleanup(event.set)
            self.hub.held[file] = (whole - 1000, event)
            process = self.start(name)
            self.await_writing(process)
            self.assertFalse(self.file_of(name).exists())
            event.set()
            errors = process.communicate(timeout=100)[1]
            self.assertEqual(process.returncode, 0, errors)
            self.assertIn("while it is downloaded", errors)
            self.assertEqual(self.file_of(name).read_bytes(), self.by_hand(name))
            self.assertEqual(self.part_of(name, file).with_suffix("").read_bytes(), self.hub.repositories[name].files[file])

    def test_headers_come_first(self):
        self.leq("pull", "tales/Parts-5M")
        etags = [self.parts.etag(file) for file in sorted(self.parts.files) if file.endswith(".safetensors")]
        requests = [(path.strip("/").partition("?")[0], wanted) for _, path, _, wanted in self.hub.store_requests]
        self.assertEqual([etag for etag, _ in requests], etags + etags)
        self.assertEqual([wanted for _, wanted in requests], ["bytes=0-262143"] * 2 + ["bytes=262144-"] * 2)

    def test_a_wrong_hash_of_a_later_file(self):
        self.hub.wrong_files = [self.last]
        self.assertRegex(self.refused("pull", "tales/Parts-5M"), "00002-of-00002.*SHA-256 of the download: expected")
        self.assertEqual([p.name for p in self.models.rglob("*") if p.is_file()], ["tales--Parts-5M--int8-g128.leq.lock"])
        self.assertFalse(self.part_of("tales/Parts-5M", self.last).exists())
        self.hub.wrong_files, self.hub.store_requests = [], []
        self.leq("pull", "tales/Parts-5M")
        self.assertEqual({path.strip("/").partition("?")[0] for _, path, _, _ in self.hub.store_requests},
                         {self.parts.etag(self.last)}, "the first file is not fetched again")
        self.assertEqual(self.file_of("tales/Parts-5M").read_bytes(), self.by_hand("tales/Parts-5M"))

    def test_cut_connections(self):
        self.hub.cut = [1000, 100, 0, 300000, 300000, 2000000, 1000000]
        self.leq("pull", "tales/Parts-5M")
        self.assertEqual(self.file_of("tales/Parts-5M").read_bytes(), self.by_hand("tales/Parts-5M"))
        self.assertEqual(self.hub.cut, [])

    def test_a_file_that_is_sent_again_from_its_beginning(self):
        whole = len(CHECKPOINT["model.safetensors"])
        self.hub.cut, self.hub.no_ranges = [whole - 1000], True
        run = self.pull()
        self.assertEqual(self.kept().read_bytes(), self.by_hand("tales/Story-5M"))
        self.assertIn("while it is downloaded", run.stderr)

    def test_two_files_of_one_content(self):
        data = CHECKPOINT["model.safetensors"]
        self.hub.repositories["tales/Twice"] = fake_hub.Repository({**CHECKPOINT, "model_copy.safetensors": data})
        self.assertIn("while it is downloaded", self.leq("pull", "tales/Twice").stderr)
        self.assertEqual(self.file_of("tales/Twice").read_bytes(), self.by_hand("tales/Twice"))

    def test_modules_with_weights(self):
        golden = SOURCE / "tests" / "golden" / "embedding-gemma"
        files = {str(p.relative_to(golden)): p.read_bytes() for p in golden.rglob("*") if p.is_file() and p.name != "golden.json"}
        self.hub.repositories["tales/Embedding"] = fake_hub.Repository(files)
        self.assertIn("while it is downloaded", self.leq("pull", "tales/Embedding").stderr)
        self.assertEqual(self.file_of("tales/Embedding").read_bytes(), self.by_hand("tales/Embedding"))
        self.assertIn("gate        left out: the model makes embeddings and no text",
                      self.leq("pull", "tales/Embedding", "--recipe", "q8").stderr)

    def test_an_end_by_a_signal_leaves_no_model(self):
        event = threading.Event()
        self.addCleanup(event.set)
        self.hub.held[self.last] = (1500000, event)
        process = self.start("tales/Parts-5M")
        self.await_writing(process)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        event.set()
        self.assertEqual(list(self.models.glob("*.leq")), [])
        have = self.part_of("tales/Parts-5M", self.last).stat().st_size
        self.hub.held, self.hub.store_requests = {}, []
        self.leq("pull", "tales/Parts-5M")
        self.assertEqual([wanted for _, _, _, wanted in self.hub.store_requests], ["bytes=%d-" % have])
        self.assertEqual(self.file_of("tales/Parts-5M").read_bytes(), self.by_hand("tales/Parts-5M"))

    def test_an_unknown_tensor_ends_the_download(self):
        files = dict(CHECKPOINT)
        data = files["model.safetensors"]
        files["model.safetensors"] = data.replace(b"self_attn.q_proj", b"self_attn.z_proj")
        self.hub.repositories["tales/Odd"] = fake_hub.Repository(files)
        event = threading.Event()
        self.addCleanup(event.set)
        self.hub.held["model.safetensors"] = (2000000, event)
        process = self.start("tales/Odd")
        limit = time.monotonic() + 60
        part = self.part_of("tales/Odd", "model.safetensors")
        while process.poll() is None and not (part.exists() and part.stat().st_size >= 2000000):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)
        event.set()
        self.assertIn("q_proj.weight is missing", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 1)
        self.assertEqual(list(self.models.glob("*.leq")), [])

    def test_a_recipe_waits_for_its_weights(self):
        run = self.leq("pull", "tales/Parts-5M", "--recipe", "q8")
        self.assertNotIn("while it is downloaded", run.stderr)
        self.assertIn("gate", run.stderr)


class TogetherWithOthers(HubCase):
    def test_two_processes_at_once(self):
        self.hub.slow = 1
        runs = [None, None]

        def start(i):
            runs[i] = self.leq("run", "tales/Story-5M", "-p", "Once upon a time", "-n", "5", "--temp", "0")

        threads = [threading.Thread(target=start, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        self.assertEqual(len(self.hub.store_requests), 1, "the weights are downloaded once")
        self.assertIn("another program", runs[0].stderr + runs[1].stderr)
        quantized = [run for run in runs if "quantizing" in run.stderr]
        self.assertEqual(len(quantized), 1)

    @unittest.skipUnless(HAS_CLIENT, "huggingface_hub is not installed")
    def test_what_the_client_downloaded_is_used(self):
        self.client("snapshot_download('tales/Story-5M')")
        bodies = len(self.hub.bodies()) + len(self.hub.store_requests)
        before = self.tree()
        self.pull()
        self.assertEqual(len(self.hub.bodies()) + len(self.hub.store_requests), bodies)
        self.assertEqual(self.tree(), before, "nothing in the client's cache changed")

    @unittest.skipUnless(HAS_CLIENT, "huggingface_hub is not installed")
    def test_the_client_uses_what_leq_downloaded(self):
        self.pull()
        bodies = len(self.hub.bodies()) + len(self.hub.store_requests)
        path = self.client("print(snapshot_download('tales/Story-5M', allow_patterns=%r))" % list(CHECKPOINT))
        self.assertEqual(len(self.hub.bodies()) + len(self.hub.store_requests), bodies)
        self.assertEqual(path.strip(), str(self.cache / "snapshots" / self.hub.repositories["tales/Story-5M"].commit))
        scan = self.client("i = scan_cache_dir(); r, = i.repos; v, = r.revisions; "
                           "print(len(i.warnings), r.repo_id, sorted(f.file_name for f in v.files), v.refs)")
        self.assertEqual(scan.strip(), "0 tales/Story-5M %r frozenset({'main'})" % sorted(CHECKPOINT))
        # The same layout, file by file, as the client's own.
        mine = self.tree()
        shutil.rmtree(self.cache)
        self.client("snapshot_download('tales/Story-5M', allow_patterns=%r)" % list(CHECKPOINT))
        theirs = {k: v for k, v in self.tree().items() if k.startswith(("blobs", "snapshots", "refs"))}
        self.assertEqual({k: v for k, v in mine.items() if k in theirs or k.startswith(("blobs", "snapshots", "refs"))}, theirs)

    def tree(self):
        """Files of the cache: their bytes' hash, or where a link points to."""
        found = {}
        for path in sorted(self.cache.rglob("*")):
            if path.is_symlink():
                found[str(path.relative_to(self.cache))] = os.readlink(path)
            elif path.is_file():
                found[str(path.relative_to(self.cache))] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def client(self, code):
        run = subprocess.run([sys.executable, "-c", "from huggingface_hub import *; " + code], capture_output=True,
                             text=True, env=self.environment(), timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
