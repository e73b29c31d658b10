"""leq-export: the command line of leq.export."""

import argparse
import os
import re
import shlex
import sys
import time

from .. import __version__, environment, errors

_GRAPH_ONLY = ("target", "past", "tokens", "opset", "ctx-size")


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        message = re.sub(r"^unrecognized arguments: (\S+).*", r"unknown option \1; see leq-export --help", message)
        raise errors.SettingError(re.sub(r"^argument (?:-\w/)?", "", message))


def _one_of(*choices):
    def value(text):
        if text not in choices:
            raise argparse.ArgumentTypeError(f"expected {' | '.join(choices)}, found '{text}'")
        return text
    return {"type": value, "metavar": "NAME", "help_choices": ": " + " | ".join(choices)}


def _number(least, most):
    def value(text):
        if not re.fullmatch(r"-?[0-9]+", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number in {least}..{most}, found '{text}'")
        return int(text)
    return {"type": value, "metavar": "N"}


def _parser():
    parser = _Parser("leq-export", allow_abbrev=False,
                     description="writes a .leq file as an ONNX model or a Hugging Face folder",
                     usage="leq-export model.leq -o DIR [--target genai]\n"
                           "       leq-export model.leq -o DIR --safetensors | --compressed-tensors",
                     epilog="Every option can also be set in the environment: LEQ_ARG_ and its long name, such as "
                            "LEQ_ARG_TARGET=genai. A flag wins.")
    parser.add_argument("model", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"leq-export {__version__}")

    def add(group, *words, help, help_choices="", **options):
        group.add_argument(*words, help=(help + help_choices).replace("%", "%%"), **options)

    group = parser.add_argument_group("What to write")
    add(group, "-o", "--output", metavar="DIR", help="the folder to write; files of the same names are replaced")
    add(group, "--target", **_one_of("onnxruntime", "tensorrt", "nnapi", "genai"),
        help="runtime that the ONNX model is written for; a model that it cannot represent is refused with the reason")
    flag = argparse.BooleanOptionalAction
    add(group, "--safetensors", action=flag,
        help="a folder of Hugging Face instead: weights as f32, config.json, tokenizer")
    add(group, "--compressed-tensors", action=flag,
        help="the same with the file's integers, as transformers reads them by the package compressed-tensors: int8 "
             "rows, or 4 bits in groups")
    group = parser.add_argument_group("The graph (ONNX)")
    add(group, "--inputs", **_one_of("auto", "file", "f32"),
        help="inputs of linears: quantized as the file says, or f32 (weights alone are quantized); auto = with stored "
             "scales where the file has them, else f32, but file for genai, whose operator quantizes by blocks of its "
             "own")
    add(group, "--past", action=flag, help="keys and values of earlier positions are inputs and outputs (default)")
    add(group, "--tokens", **_number(0, 1 << 20),
        help="a graph of fixed sizes: one sequence of N tokens, no past; 0 = sizes are open (default)")
    add(group, "--opset", **_number(21, 24), help="version of the operators (default 21)")
    add(group, "-c", "--ctx-size", **_number(0, 1 << 24),
        help="positions that the graph is made for; 0 = the model's (default)")
    return parser


def _parse(words):
    """The options that were given, by their long names, and the model's path."""
    parser = _parser()
    environment.set_defaults(parser, words)
    given = vars(parser.parse_intermixed_args(words))
    models = given.pop("model")
    given = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
    if "output" not in given:
        raise errors.SettingError("missing option -o, --output DIR; see leq-export --help")
    if len(models) > 1:
        raise errors.SettingError(f"unexpected argument '{models[1]}'; see leq-export --help")
    if not models:
        raise errors.SettingError("a model must be given: leq-export model.leq -o DIR; see leq-export --help")
    return models[0], given


def _check_model_file(path):
    """Advice for the usual files that are no .leq file."""
    name = os.path.basename(os.path.normpath(path))
    hub = re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+", path) and not path.endswith(".leq")

    def quantize(source):
        made = "model.leq" if name in (".", "..") else re.sub(r"\.gguf$", "", name) + ".leq"
        return f"`leq-quantize {shlex.quote(source)} -o {shlex.quote(made)}`"

    if not os.path.exists(path):
        if hub and not os.path.exists(path.partition("/")[0]):
            raise errors.InputError(f"{path}: no such file; for the model of that name on the Hugging Face hub: "
                                    f"`hf download {path} --local-dir {name}`, then {quantize(name)}")
        raise errors.FileError(f"{path}: no such file or folder")
    if os.path.isdir(path):
        if not os.path.exists(os.path.join(path, "config.json")):
            raise errors.InputError(f"{path}: is a folder without config.json, expected a .leq file")
        raise errors.InputError(f"{path}: is a checkpoint folder, and a .leq file is what runs: {quantize(path)} makes "
                                "one")
    if os.path.isfile(path):
        with open(path, "rb") as file:
            if file.read(4) == b"GGUF":
                raise errors.InputError(f"{path}: is a GGUF file, and a .leq file is what is looked into: "
                                        f"{quantize(path)} makes one")


def _export(path, given):
    try:
        from . import export_huggingface, export_onnx
    except ImportError as error:
        raise errors.UsageError(errors.missing(error.name, "export")) from None
    folder, compressed = given["output"], given.get("compressed-tensors", False)
    if not compressed and not given.get("safetensors"):
        names = {"ctx-size": "context"}
        options = {names.get(name, name): given[name] for name in (*_GRAPH_ONLY, "inputs") if name in given}
        return export_onnx(path, folder, **options)
    if not compressed and "inputs" in given:
        raise errors.SettingError("--inputs does not apply to --safetensors, which writes floats: leave one of them "
                                  "out")
    for name in _GRAPH_ONLY:
        if name in given:
            raise errors.SettingError(f"--{name} applies to ONNX graphs only: leave it out, or leave out --"
                                      + ("compressed-tensors" if compressed else "safetensors"))
    return export_huggingface(path, folder, compressed=compressed, inputs=given.get("inputs", "auto"))


def _human_bytes(count):
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {units[0]}"


def _printable(text):
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _run(words):
    path, given = _parse(sys.argv[1:] if words is None else words)
    _check_model_file(path)
    for name in ("model.onnx", "model.onnx.data", "model.safetensors"):
        target = os.path.join(given["output"], name)
        if os.path.exists(target) and os.path.samefile(target, path):
            raise errors.InputError(f"{target}: is read here{'' if target == path else ' as ' + path}; choose another "
                                    "name for what is written")
    start = time.monotonic()
    written, notes = _export(path, given)
    for note in notes:
        print("note       ", _printable(note), file=sys.stderr)
    print(f"wrote       {_printable(given['output'])}, {_human_bytes(written.bytes)} in "
          f"{time.monotonic() - start:.1f} s: {', '.join(written.files)}", file=sys.stderr)


def main(words=None):
    try:
        _run(words)
        return 0
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        message = "out of memory; close other programs, raise `ulimit -v`, or try a smaller model, context or batch"
    except errors.Error as error:
        message = str(error)
    except OSError as error:
        message = ": ".join(filter(None, (error.filename, error.strerror or str(error))))
    print(f"leq-export: error: {_printable(message)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
