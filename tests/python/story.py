"""The project's small model, quantized once for a file of tests, and the tools beside it."""

import os
import pathlib
import subprocess
import tempfile

import leq

SOURCE = pathlib.Path(os.environ["LEQ_SOURCE"])
TOOLS = pathlib.Path(os.environ["LEQ_TOOLS"])
STORY = SOURCE / "examples/storyteller"
WORK = tempfile.TemporaryDirectory()
PATH = pathlib.Path(WORK.name) / "story.leq"
PROMPT = "Once upon a time"


def tool(name, *words):
    return subprocess.run([TOOLS / name, *map(str, words)], check=True, capture_output=True,
                          text=True).stdout


def setUpModule():
    tool("leq-quantize", STORY, "-o", PATH, "--type", "int8")


def tearDownModule():
    WORK.cleanup()


def open_model(**options):
    return leq.Model(PATH, **{"threads": 2, "context": 1024, **options})
