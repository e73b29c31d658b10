"""A .leq file for other runtimes: an ONNX model, or a folder of Hugging Face (`pip install leq[export]`).

    from leq.export import export_onnx, export_huggingface
    export_onnx("model.leq", "folder", target="genai")

leq-export is the same on the command line. docs/export.md is the manual."""

from .huggingface import export_huggingface
from .onnx_folder import export_onnx

__all__ = ["export_onnx", "export_huggingface"]
