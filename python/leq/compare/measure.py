"""What a comparison measures of any model: files, quality, speed, answers. Each result is kept, so that an
interrupted comparison continues."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy

from .. import Model, __version__, errors, plan_memory, quantize
from . import text

BASE = "base"
EXACT_CACHE = "f32"
METHODS = ("absmax", "zeropoint", "rtn", "zeroquant", "gptq", "gptq+", "nf4", "billm", "smoothquant",
           "awq")
RECIPES = ("q8", "q6", "q5", "q4", "q4-small", "zeroquant-w48", "auto")
SEARCHED_BITS = 4.25  # a search's target: the bits of int4 in groups of 64
_SEARCH = {"target_bpw": SEARCHED_BITS, "search_evaluations": 48, "search_windows": 4}  # one of many candidates
LONG_CONTEXT = 8192  # as in the paper's Table 3


@dataclass(frozen=True)
class Candidate:
    """A way to quantize a model: METHOD[:TYPE][+ACT][#WINDOWS][@CACHE]."""

    spec: str
    method: str
    type: str | None = None
    act: str | None = None
    windows: int | None = None
    cache: str = EXACT_CACHE

    @property
    def is_base(self):
        return self.method == BASE

    @property
    def searches(self):
        return self.method == "auto"


@dataclass
class Sizes:
    """The extent of each part."""

    layer_windows: int = 4
    layer_tokens: int = 256
    runs: int = 5
    prompt: int = 512
    generated: int = 64
    calibration_windows: list = field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64, 128])
    contexts: list = field(default_factory=lambda: [128, 256, 512, 1024, 2048, 8192, 32768])
    context_tokens: int = 4096  # for each point, at least one window
    sequences: list = field(default_factory=lambda: [1, 2, 4, 8, 16])
    fusion_runs: int = 101
    questions: int = 0  # of each file; 0: all


def quick_sizes():
    return Sizes(2, 128, 3, 256, 32, [1, 4, 16], [128, 512, 2048], 2048, [1, 4], 101, 40)


@dataclass
class Job:
    """What is compared, and how."""

    checkpoint: Path
    output: Path
    candidates: list
    text: Path
    protocol: str = "hf"
    join: str | None = None
    window: int | None = None
    chunks: int = 16
    calibration: Path | None = None
    samples: int = 32
    length: int = 512
    choices: list = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    parts: list = field(default_factory=lambda: ["speed", "layers", "inside", "curves"])
    again: list = field(default_factory=list)
    quick: bool = False
    keep_files: bool = False
    threads: int = 0


def exact_type(checkpoint):
    """The float type that holds the checkpoint's numbers as they are."""
    if checkpoint.is_file():  # GGUF
        with Model(checkpoint, load="map", context=64) as model:
            found = model.inspect()["type"]
        return found if found in ("f16", "bf16") else "f32"
    types, whole = set(), checkpoint / "model.safetensors"
    for path in [whole] if whole.exists() else checkpoint.glob("model*.safetensors"):
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(size))
        types |= {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
    config = json.loads((checkpoint / "config.json").read_text())
    floats = types & {"F16", "BF16", "F32", "F64"}
    packed = "quantization_config" in config
    return {"F16": "f16", "BF16": "bf16"}.get(next(iter(floats)), "f32") if len(floats) == 1 and not packed else "f32"


def identity_of(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def write_whole(path, content):
    """Writes a file that is there whole or not at all."""
    partial = path.with_name(path.name + ".new")
    partial.write_text(content, encoding="utf-8")
    os.replace(partial, path)


def find_tool(name):
    """The path of one of leq's command-line tools, or None."""
    folders = [os.environ.get("LEQ_TOOLS"), str(Path(sys.executable).parent), os.environ.get("PATH")]
    return shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder))


class Bench:
    """The shared state of measurements: the checkpoint, its text in windows, a file for each candidate."""

    def __init__(self, job):
        self.job, self._seconds = job, {}
        self.text = text.read_text(job.text)
        self.calibration = None if job.calibration is None else text.read_text(job.calibration)
        self.checkpoint_hash = self._hash_of_checkpoint()
        made = not job.output.exists()
        self.work, self.results = job.output / "work", job.output / "results"
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            self.results.mkdir(exist_ok=True)
            self._lock = open(self.work / "lock", "w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.FileError(f"{self.work}: another leq-compare writes there") from None
        except OSError as error:
            raise errors.FileError(f"{job.output}: no folder, and cannot be made one: {error.strerror}") from None
        try:
            with self.open(Candidate(BASE, BASE)) as model:
                self.info = model.inspect()
                self.windows = text.windows_of(self.text, job.text, job.protocol, job.join, job.window, job.chunks,
                                               model.tokenizer, self.info["config"]["context"])
        except errors.Error:
            if made:  # a refused request leaves nothing
                shutil.rmtree(job.output)
            raise

    @property
    def layers(self):
        found = self.info["config"]["layers"]
        return found if isinstance(found, int) else len(found)

    def _hash_of_checkpoint(self):
        """Of sizes, times and beginnings of the checkpoint's files: an edited one has another."""
        checkpoint, facts = self.job.checkpoint, []
        paths = [checkpoint] if checkpoint.is_file() else sorted(
            path for kind in ("*.json", "*.safetensors", "*.model", "*.bin") for path in checkpoint.glob(kind))
        if not paths:
            raise errors.FileError(f"{checkpoint}: no such file or folder, or nothing of a checkpoint in it")
        for path in paths:
            with open(path, "rb") as file:
                begin = hashlib.sha256(file.read(1 << 20)).hexdigest()
            facts.append([path.name, path.stat().st_size, path.stat().st_mtime_ns, begin])
        return identity_of(facts)

    # ---- Results ----

    def find(self, identity):
        try:
            kept = json.loads((self.results / (identity_of(identity) + ".json")).read_text())
            return kept["result"] if kept["identity"] == identity else None
        except (OSError, ValueError, KeyError):  # an invalid file is measured again
            return None

    def keep(self, identity, result):
        write_whole(self.results / (identity_of(identity) + ".json"),
                    json.dumps({"identity": identity, "result": result}) + "\n")

    # ---- Files ----

    def _options(self, candidate):
        options = {"samples": candidate.windows or self.job.samples, "length": self.job.length}
        if candidate.is_base:
            return {"method": "absmax", "type": "exact"}
        if candidate.method in RECIPES:
            options["recipe"] = candidate.method
        else:
            options |= {"method": candidate.method, "type": candidate.type}
        if candidate.searches:
            options |= _SEARCH
        return options | ({"act": candidate.act} if candidate.act else {})

    def file_identity(self, candidate):
        calibration = None if self.calibration is None else text.hash_of(self.calibration)
        return {"checkpoint": self.checkpoint_hash, "options": self._options(candidate), "version": __version__,
                "calibration": None if candidate.is_base else calibration}

    def identity(self, candidate, step):
        return {"file": self.file_identity(candidate), "cache": candidate.cache, "step": step,
                "text": text.hash_of(self.text), "protocol": self.windows.describe(),
                "windows": len(self.windows.windows)}

    def _path_of(self, candidate):
        return self.work / (identity_of(self.file_identity(candidate)) + ".leq")

    def remove_file(self, candidate):
        self._path_of(candidate).unlink(missing_ok=True)
        shutil.rmtree(str(self._path_of(candidate)) + ".partial", ignore_errors=True)

    def file_of(self, candidate):
        """(path, seconds): the candidate's file, and how long it took unless an earlier run has made some of it."""
        path = self._path_of(candidate)
        if path.exists():
            return path, self._seconds.get(path)
        options = self._options(candidate)
        if candidate.is_base:
            options["type"] = exact_type(self.job.checkpoint)
        begun, start = Path(str(path) + ".partial").exists(), time.monotonic()
        quantize(self.job.checkpoint, path, calibration=self.calibration, threads=self.job.threads,
                 say=lambda line: None, **options)
        self._seconds[path] = None if begun else time.monotonic() - start
        return path, self._seconds[path]

    def open(self, candidate, context=64, sequences=1):
        return Model(self.file_of(candidate)[0], context=context, sequences=sequences, threads=self.job.threads,
                     key_type=candidate.cache, value_type=candidate.cache, speculate=False, load="map")

    def unlock(self):
        self._lock.close()

    def remove_work(self):
        """Removes what a comparison writes in `work`, and the folder unless it holds something else."""
        for path in self.work.iterdir():
            if path.is_symlink() or not re.fullmatch(r"lock|[0-9a-f]{16}(\.leq.*|\.new)?", path.name):
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with contextlib.suppress(OSError):
            self.work.rmdir()

    # ---- Quality ----

    def rows_of_base(self, windows):
        """Logits of the unquantized model, window by window, from files that the first call writes."""
        name = identity_of([self.identity(Candidate(BASE, BASE), "logits"), windows.describe(), windows.windows])
        folder = self.work / name
        if not folder.exists():
            partial = self.work / (name + ".new")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            with self.open(Candidate(BASE, BASE), windows.window) as model:
                for i, (logits, _) in enumerate(text.each_window(model, windows)):
                    numpy.save(partial / f"{i}.npy", logits)
            partial.rename(folder)
        return (numpy.load(folder / f"{i}.npy", mmap_mode="r") for i in range(len(windows.windows)))

    def quality(self, candidate, windows=None):
        windows = windows or self.windows
        with self.open(candidate, windows.window) as model:
            rows = [text.compare_rows(base, logits, targets) for base, (logits, targets)
                    in zip(self.rows_of_base(windows), text.each_window(model, windows))]
        return text.quality(windows, rows)

    # ---- Speed, by leq-bench ----

    def bench(self, candidate, *flags):
        tool = find_tool("leq-bench")
        if tool is None:
            raise errors.InputError("speeds need the command-line tool leq-bench: put it on PATH, or name its folder "
                                    "with LEQ_TOOLS")
        cache = [] if candidate.cache == EXACT_CACHE else ["-ctk", candidate.cache, "-ctv", candidate.cache]
        words = [tool, "-m", self.file_of(candidate)[0], *flags, *cache, "-t", self.job.threads, "-o", "json"]
        run = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if run.returncode:
            last = (run.stderr.strip() or "leq-bench failed").splitlines()[-1]
            raise errors.InputError(last.removeprefix("leq-bench: error: "))
        return json.loads(run.stdout)

    def test_flags(self):
        sizes, half = self.job.sizes, self.info["config"]["context"] // 2
        return ["-p", min(sizes.prompt, half), "-n", min(sizes.generated, half), "-r", sizes.runs]


def speed_of(row):
    return {"tps": row["tps"], "min": row["tps_min"], "max": row["tps_max"], "test": row["test"]}


def measure_file(bench, candidate):
    path, seconds = bench.file_of(candidate)
    with Model(path, context=64, load="map") as model:
        info = model.inspect()
    texts = info.get("provenance", {}).get("calibration", [])
    return {"setup_seconds": seconds, "file_bytes": info["file_bytes"], "bits_per_weight": info["bits_per_weight"],
            "type": info["type"], "parameters": info["parameters"],
            "calibration_tokens": sum(one.get("samples", 0) * one.get("length", 0) for one in texts)}


def measure_quality(bench, candidate):
    return bench.quality(candidate)


def measure_memory(bench, candidate):
    """Bytes planned for one window of the text, and for a long context."""
    path, cache = bench.file_of(candidate)[0], None if candidate.cache == EXACT_CACHE else candidate.cache
    longest = min(LONG_CONTEXT, bench.info["config"]["context"])
    plan, long = (plan_memory(path, context=context, threads=bench.job.threads, key_type=cache, value_type=cache,
                              speculate=False) for context in (bench.windows.window, longest))
    return {"weight_bytes": plan["weight_bytes"], "kv_bytes": plan["kv_bytes"],
            "scratch_bytes": plan["scratch_bytes"], "memory_bytes": plan["total_bytes"],
            "long_context": longest, "long_memory_bytes": long["total_bytes"]}


def measure_speed(bench, candidate):
    """{"prompt", "generation"}: tokens per second; {"prompt_parts", "generation_parts"}: ms of a step by part."""
    flags = bench.test_flags()
    prompt, generation = bench.bench(candidate, *flags)
    found = {"prompt": speed_of(prompt), "generation": speed_of(generation),
             "prompt_parts": {}, "generation_parts": {}}
    for row in bench.bench(candidate, *flags, "--breakdown"):
        name = "prompt" if row["test"] == prompt["test"] else "generation"
        found["machine"] = row["backend"]
        if row["part"] not in ("all parts", "step, untimed"):
            found[name + "_parts"]["step_ms" if row["part"] == "step" else row["part"]] = row["ms"]
    return found


def measure_choices(bench, candidate, questions):
    context = min(bench.info["config"]["context"], 2048)
    with bench.open(candidate, context) as model:
        return text.measure_choices(model, questions, context)


@dataclass
class Step:
    """One measurement, whose result is results[group][candidate.spec]."""

    group: str
    candidate: Candidate
    identity: dict
    run: object


class Comparison:
    """All steps of a job; `plans` are callables that add others' steps (paper.plan)."""

    SPEED = ("speed", "batches", "ranks", "fusion")

    def __init__(self, job, plans=(), say=print, progress=lambda done, total, step: None):
        self.job, self.say, self.progress = job, say, progress
        stems = [path.stem for path in dict.fromkeys(job.choices)]
        self.tasks = {path.stem if stems.count(path.stem) == 1 else str(path):
                      text.read_questions(path, job.sizes.questions) for path in job.choices}
        self.bench, self.steps = Bench(job), []
        everything = [Candidate(BASE, BASE), *job.candidates]
        for candidate in everything:
            self.add("file", candidate, measure_file)
            self.add("quality", candidate, measure_quality)
            self.add("memory", candidate, measure_memory)
        if "speed" in job.parts:
            for candidate in everything:
                self.add("speed", candidate, measure_speed, [*map(str, self.bench.test_flags()), job.threads])
        for plan in plans:
            plan(self, everything)
        for name, questions in self.tasks.items():
            sizes = [identity_of([[one.context, one.choices, one.answer] for one in questions])]
            for candidate in everything:
                self.add("choices " + name, candidate,
                         lambda bench, one, questions=questions: measure_choices(bench, one, questions), sizes)

    def add(self, group, candidate, measure, sizes=None):
        """`sizes`: what the result depends on beside file, text and windows."""
        identity = ({"step": group, "file": self.bench.file_identity(candidate)} if group == "file"
                    else self.bench.identity(candidate, group))
        self.steps.append(Step(group, candidate, identity | {"sizes": sizes},
                               lambda: measure(self.bench, candidate)))

    def run(self):
        try:
            return self._run()
        finally:
            self.bench.unlock()

    def _run(self):
        results = self._facts()
        impossible, again = set(), set()
        for done, step in enumerate(self.steps):
            spec = step.candidate.spec
            self.progress(done, len(self.steps), f"{step.group} {spec}")
            if spec in impossible:
                continue
            try:
                results.setdefault(step.group, {})[spec] = self._result_of(step, again)
            except (errors.InputError, errors.SettingError) as error:
                needed = step.group in ("file", "quality")
                if step.candidate.is_base and needed:
                    raise
                if needed:
                    impossible.add(spec)
                self.say(f"{spec}, {step.group}: left out: {error}")
                results["not_measured"].append({"method": spec, "measurement": step.group, "reason": str(error)})
        self.progress(len(self.steps), len(self.steps), "")
        results["candidates"] = [one.spec for one in self.job.candidates if one.spec not in impossible]
        if not results["candidates"]:
            raise errors.InputError("no method could be measured; nothing to compare")
        if not self.job.keep_files:
            self.bench.remove_work()
        return {name: group for name, group in results.items() if group != {}}

    def _result_of(self, step, again):
        part = "setup" if step.group == "file" else "speed" if step.group in self.SPEED else None
        name = identity_of(step.identity)
        repeat = part in self.job.again and name not in again  # steps that share an identity: once
        kept = self.bench.find(step.identity)
        if kept is not None and not repeat:
            return kept
        if repeat:
            again.add(name)
            if part == "setup":
                self.bench.remove_file(step.candidate)
        result = step.run()
        self.bench.keep(step.identity, result)
        return result

    def _facts(self):
        job, bench = self.job, self.bench
        info, windows = bench.info, bench.windows
        layers = info["config"]["layers"]  # their number, or a list where they differ
        recurrent = 0 if isinstance(layers, int) else sum(one["mixer"]["kind"] != "attention" for one in layers)
        return {"model": {"name": job.checkpoint.resolve().name, "description": info["description"], "layers": bench.layers,
                          "recurrent_layers": recurrent, "width": info["config"]["width"],
                          "context": info["config"]["context"], "parameters": info["parameters"]},
                "machine": {"cpu": _processor()},
                "text": {"name": job.text.name, "sha256": hashlib.sha256(job.text.read_bytes()).hexdigest(),
                         "tokens": len(windows.tokens), "protocol": windows.describe(), "window": windows.window,
                         "windows": len(windows.windows), "scored": windows.scored},
                "calibration_text": {"source": str(job.calibration or "built-in"), "windows": job.samples,
                                     "length": job.length},
                "quick": job.quick, "version": __version__, "candidates": [], "not_measured": [],
                "tasks": list(self.tasks)}


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
                os.uname().machine)
