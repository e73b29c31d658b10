"""Checkpoints from the Hugging Face hub, for Model.from_pretrained alone."""

import os
import re

from . import errors

_PATTERNS = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja", "*.txt"]


def cache_folder(cache_dir=None):
    """$LEQ_CACHE, else $XDG_CACHE_HOME/leq, else ~/.cache/leq."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.fspath(cache_dir or os.environ.get("LEQ_CACHE") or os.path.join(base, "leq"))


def fetch(repo, type=None, recipe=None, revision=None, cache_dir=None):
    """The path of the quantized file, made where it is not there yet."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise errors.UsageError("from_pretrained " + errors.missing("huggingface_hub", "hub")) from None
    from . import quantize
    folder = snapshot_download(repo, revision=revision, allow_patterns=_PATTERNS)
    kind = recipe or type or "q8"
    # The snapshot's folder is named after its commit.
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{repo}-{os.path.basename(folder)[:12]}-{kind}")
    path = os.path.join(cache_folder(cache_dir), name + ".leq")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        quantize(folder, path, recipe=recipe, type=type)
    return path
