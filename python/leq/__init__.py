"""leq runs quantized language models on the CPU. docs/python.md is the manual.

    model = leq.Model("model.leq")
    print(model.generate("Once upon a time", max_tokens=64))
"""

import json as _json
import logging as _logging

from . import _leq, types
from ._leq import Cancel, __version__
from .errors import (ContextFullError, DeviceError, Error, FileError, InputError, InternalError,
                     InterruptedError, OutOfMemoryError, SettingError, UsageError, WrongTypeError)
from .aio import AsyncModel, AsyncStream
from .model import Divergence, Model, Perplexity, _session_settings, _set_all
from .replies import Piece, ReceiptDifference, Reply
from .streams import Stream
from .tokenizer import Tokenizer, path_bytes as _path_bytes

__all__ = ["Model", "AsyncModel", "Tokenizer", "Reply", "Piece", "Stream", "AsyncStream",
           "ReceiptDifference", "Perplexity", "Divergence", "Cancel",
           "quantize", "inspect", "plan_memory", "Error", "InputError", "SettingError",
           "OutOfMemoryError", "DeviceError", "FileError", "InterruptedError", "InternalError",
           "UsageError", "ContextFullError", "WrongTypeError", "types", "__version__"]


def quantize(checkpoint, output, *, recipe=None, method=None, type=None, calibration=None,
             progress=None, say=None, **options):
    """A Hugging Face folder, or a GGUF file, to a .leq file, complete or not at all.

    recipe       "q8", "q4", or "auto", which finds bits for each layer: target_bpw=4.25, or q4's size. Without recipe, method
                 and type, codes of a GGUF file or of a quantized checkpoint are kept, and anything else is
                 quantized by q8
    method, type as leq-quantize has them: "gptq+", "int4-g128"
    calibration  a text, or an iterable of texts; None: the built-in one
    progress     called with (work, done, total)
    say          called with lines for people; None: they go to logging, logger "leq", level INFO
    options      act (how inputs are quantized), samples, length, seed, threads, target_bpw, search_evaluations,
                 search_windows, judge, restart (an interrupted run is continued otherwise)

    Returns a dict: file_bytes, parameters, bits_per_weight, worst_error, and kl in nats where
    judge=True measured it."""
    settings = _leq.QuantizeSettings()
    if calibration is not None and not isinstance(calibration, str):
        calibration = "\n\n".join(calibration)
    settings.calibration = calibration
    _set_all(settings, {"recipe": recipe, "method": method, "type": type, **options}, "quantize")
    return _leq.quantize(_path_bytes(checkpoint), _path_bytes(output), settings, progress,
                         say or _logging.getLogger("leq").info)


def inspect(path):
    """What is in a .leq file, as a dict, without loading its weights."""
    return _json.loads(_leq.Model(_path_bytes(path), load=1).inspect())


def plan_memory(path, *, context=0, sequences=1, threads=0, key_type=None, value_type=None,
                device=None, speculate=True, logit_rows=64):
    """The bytes that Model(path, ...) will take, from the file's header: a dict of weight_bytes, kv_bytes,
    scratch_bytes, total_bytes, and of available_bytes on this machine."""
    return _leq.plan_memory(_path_bytes(path), _session_settings(
        speculate, context=context, sequences=sequences, threads=threads, key_type=key_type,
        value_type=value_type, device=device, logit_rows=logit_rows))
