"""A .leq file for other runtimes: an ONNX model, or a folder of Hugging Face (extra `export`).

    from leq.export import export_onnx, export_huggingface
    export_onnx("model.leq", "folder", target="genai")

leq-export is the same on the command line. docs/export.md is the manual."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .huggingface import export_huggingface
    from .onnx_folder import export_onnx

__all__ = ["export_onnx", "export_huggingface"]


def __getattr__(name):
    # Not before they are used, so that leq-export can say what to install.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".onnx_folder" if name == "export_onnx" else ".huggingface", __name__), name)
