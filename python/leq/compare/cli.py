"""leq-compare: the command line."""

import argparse
import re
import sys
from pathlib import Path

from .. import __version__, environment, errors, quantize

_CACHES = ("f32", "f16", "int8", "int4", "simq8", "simq4", "simq2")
_ACTS = ("auto", "none", "row", "g128", "g32", "tensor", "online")
_PARTS = ("speed", "layers", "inside", "curves")
_AGAIN = ("speed", "setup")
_FULL = ("absmax:int8,zeropoint,smoothquant:int8,simquant:8,simquant:4,zeroquant,awq,gptq,gptq+,absmax:int4-g128,nf4,q8,"
         "q4,auto")
_QUICK = "absmax:int8,smoothquant:int8,simquant:8,zeroquant,awq,gptq,absmax:int4-g128,q8,q4"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise errors.SettingError(re.sub(r"^argument (?:-\w+/)*", "", message))


def parse_candidate(spec):
    """A Candidate of METHOD[:TYPE][+ACT][#WINDOWS][@CACHE]; raises SettingError naming what is unknown."""
    from .measure import BASE, EXACT_CACHE, METHODS, RECIPES, Candidate

    def refuse(words):
        raise errors.SettingError(f"--methods: {words}")
    spec = spec.strip()
    rest, _, cache = spec.partition("@")
    rest, mark, windows = rest.partition("#")
    if cache and cache not in _CACHES:
        refuse(f"{spec}: unknown cache {cache}; use {', '.join(_CACHES)}")
    if mark and not re.fullmatch(r"[1-9]\d{0,8}", windows):
        refuse(f"{spec}: expected a number of calibration windows after #")
    act = None
    if found := re.fullmatch(r"(.+)\+([^:+]+)", rest):  # a plus at the end belongs to the name: gptq+
        rest, act = found.groups()
        if act not in _ACTS:
            refuse(f"{spec}: unknown inputs {act}; use {', '.join(_ACTS)}")
    method, _, type = rest.partition(":")
    known = (BASE, "simquant", *METHODS, *RECIPES)
    if method not in known:
        refuse(f"unknown method {method}; use {', '.join(known)}")
    if method == "simquant":
        if type not in ("", "8", "4", "2"):
            refuse(f"{spec}: SimQuant has caches of 8, 4 and 2 bits")
        return Candidate(spec, BASE, cache=f"simq{type or 8}")
    if type and (method == BASE or method in RECIPES):
        refuse(f"{spec}: {method} has a type of its own")
    if type in ("f32", "f16", "bf16") and method != "absmax":
        refuse(f"{spec}: type {type} has no codes to choose; use absmax:{type}")
    return Candidate(spec, method, type or None, None if act == "auto" else act, int(windows) if windows else None,
                     cache or EXACT_CACHE)


def parse_candidates(words):
    """The distinct candidates of a list, without the base, which is always there."""
    found = {one.spec: one for one in map(parse_candidate, filter(str.strip, words.split(",")))}
    found.pop("base", None)
    if not found:
        raise errors.SettingError("--methods: expected a method, found none")
    return list(found.values())


def check_types(candidates, folder):
    """Raises SettingError for a type that does not exist or does not go with its method, as leq.quantize says."""
    for one in candidates:
        if one.type:
            try:
                quantize(str(folder / "no checkpoint"), str(folder / "none.leq"), method=one.method, type=one.type)
            except errors.Error as error:
                if one.type in str(error):
                    raise errors.SettingError(f"--methods: {one.spec}: {error}") from None


def _number(least, most=1 << 24):
    def value(words):
        if not re.fullmatch(r"\d{1,10}", words) or not least <= int(words) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, found '{words}'")
        return int(words)
    return value


def _numbers(words):
    return [_number(1)(word.strip()) for word in words.split(",")]


def _words(known):
    def value(words):
        found = [word for word in words.split(",") if word not in ("", "none")]
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"unknown part {word}; use {', '.join(known)} or none")
        return found
    return value


def parser():
    made = _Parser("leq-compare", allow_abbrev=False, usage="leq-compare HF_DIR -f wiki.test.raw -o report [options]",
                   description="compares ways to quantize a model: tables, charts and tests on one page",
                   epilog="Every option can also be set in the environment: LEQ_ARG_ and its long name, such as "
                          "LEQ_ARG_THREADS=4. A flag wins.")
    made.add_argument("checkpoint", nargs="*", help=argparse.SUPPRESS)
    made.add_argument("--version", action="version", version=f"leq-compare {__version__}")

    def add(*words, **options):
        made.add_argument(*words, **options)
    add("-o", "--output", metavar="FOLDER", help="for index.html, report.json, CSV files and kept results: the same "
                                                 "command continues an interrupted comparison")
    add("--keep-files", action="store_true", help="leave the quantized files in FOLDER/work")
    add("--methods", metavar="LIST", help="METHOD[:TYPE][+ACT][#WINDOWS][@CACHE], separated by commas: absmax:int8, "
        "smoothquant:int8+online, gptq:int4-g64#32, simquant:4, base@simq8, q8; the unquantized model is always there "
        "(default: the paper's methods and recipes)")
    add("-f", "--file", metavar="FILE", help="the text to measure on, in UTF-8")
    add("--choices", metavar="FILE", action="append", help="questions with choices (JSONL of HellaSwag, PIQA, ARC, MMLU, "
        "or context, choices and label); may be given again")
    add("--questions", metavar="N", type=_number(0), help="the first N of each file of choices; 0: all (default 0, --quick "
        "40)")
    add("--protocol", choices=("hf", "hf-stride", "llamacpp-512"), default="hf", help="which windows are fed and which "
        "tokens count (default hf)")
    add("-c", "--window", "--ctx-size", metavar="N", type=_number(2), help="tokens in a window (default: the model's "
        "context, at most 2048); --quick 256")
    add("--chunks", metavar="N", type=_number(0), help="measure the first N windows only; 0: all (default 16, --quick 8)")
    add("--join", choices=("hf", "none"), help="whether lines are rows, joined by empty lines: hf, or none "
        "(default hf for wiki.test.raw with a hf protocol, else none)")
    add("--calibration", metavar="FILE", help="plain text to calibrate on; default: a built-in text")
    add("--samples", metavar="N", type=_number(1, 1 << 20), help="number of calibration windows (default 32, --quick 8)")
    add("--parts", metavar="LIST", type=_words(_PARTS), default=list(_PARTS), help="what is measured beside files and "
        "their quality, separated by commas (default speed,layers,inside,curves); none: nothing")
    add("--contexts", metavar="N,...", type=_numbers, help="window lengths of the curve over context; the model's longest "
        "is the limit (default 128 to 32768, --quick 128,512,2048)")
    add("--calibration-windows", metavar="N,...", type=_numbers, help="calibration windows of the curve over calibration "
        "text (default 1 to 128, --quick 1,4,16)")
    add("--again", metavar="LIST", type=_words(_AGAIN), default=[], help="kept results that are measured again, as after a "
        "run beside other programs: speed, setup (seconds of quantization)")
    add("--quick", action="store_true", help="few windows, short tests, fewer methods")
    add("-t", "--threads", metavar="N", type=_number(0, 1024), default=0, help="threads; 0 = one for each core (default 0)")
    return made


def job_of(words):
    """The Job of a command line; raises leq.Error."""
    from .measure import Job, Sizes, quick_sizes
    made = parser()
    environment.set_defaults(made, words)
    given = made.parse_intermixed_args(words)
    if len(given.checkpoint) > 1:
        raise errors.SettingError(f"unexpected argument '{given.checkpoint[1]}'; see leq-compare --help")
    for name, flag in (("output", "-o, --output FOLDER"), ("file", "-f, --file FILE")):
        if getattr(given, name) is None:
            raise errors.SettingError(f"missing option {flag}; see leq-compare --help")
    if not given.output:
        raise errors.SettingError("-o: expected the name of a folder to write, found nothing")
    if not given.checkpoint:
        raise errors.SettingError("HF_DIR is missing: the folder with config.json and *.safetensors, or a GGUF file")
    checkpoint, sizes = Path(given.checkpoint[0]), quick_sizes() if given.quick else Sizes()
    if not checkpoint.exists():
        raise errors.FileError(f"{checkpoint}: no such file or folder")
    for name in ("questions", "contexts", "calibration_windows"):
        if getattr(given, name) is not None:
            setattr(sizes, name, getattr(given, name))
    window = given.window or (256 if given.quick and given.protocol == "hf" else None)
    candidates = parse_candidates(given.methods or (_QUICK if given.quick else _FULL))
    check_types(candidates, Path(given.output).resolve().parent)
    return Job(checkpoint, Path(given.output), candidates, Path(given.file), given.protocol, given.join, window,
               given.chunks if given.chunks is not None else 8 if given.quick else 16,
               given.calibration and Path(given.calibration), given.samples or (8 if given.quick else 32),
               choices=[Path(one) for one in given.choices or []], sizes=sizes, parts=given.parts, again=given.again,
               quick=given.quick, keep_files=given.keep_files, threads=given.threads)


class _Progress:
    """A line on a terminal that shows the current step, and lines above it."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()

    def step(self, done, total, name):
        if self.terminal:
            print(f"\r\33[K{f'{done} of {total} steps: {name}' if name else ''}", end="", file=sys.stderr, flush=True)

    def say(self, line):
        print(("\r\33[K" if self.terminal else "") + line, file=sys.stderr)


def main(words=None):
    try:
        return _run(sys.argv[1:] if words is None else words)
    except errors.Error as error:
        print(f"leq-compare: error: {error}", file=sys.stderr)
    except (KeyboardInterrupt, errors.InterruptedError):
        print("\nleq-compare: interrupted; measurements are kept: the same command continues", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        print(f"leq-compare: error: {errors.missing(error.name, 'compare')}", file=sys.stderr)
    except OSError as error:
        print(f"leq-compare: error: {error.filename or 'system'}: {error.strerror}", file=sys.stderr)
    return 1


def _run(words):
    job = job_of(words)
    from . import page, paper
    from .measure import Comparison
    progress = _Progress()
    found = Comparison(job, [paper.plan], progress.say, progress.step).run()
    path, size, summary = page.write(found, job.output)
    print(summary)
    print(f"wrote {path}, {size / 1e6:.1f} MB", file=sys.stderr)
    return 0
