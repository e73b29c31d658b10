"""A leq-server on a free port with the storyteller, for the scripts beside this one."""

import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIPPED)


class Served:
    """with Served(tools, "--api-key", "k") as served: ... served.url"""

    def __init__(self, tools, *flags):
        self.tools = pathlib.Path(tools)
        self.flags = flags

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="leq-served-")
        model = pathlib.Path(self.folder.name) / "storyteller.leq"
        subprocess.run([self.tools / "leq-quantize", SOURCE / "examples/storyteller", "-o", model,
                        "--type", "int8", "--method", "rtn"], check=True, capture_output=True)
        self.process = subprocess.Popen(
            [self.tools / "leq-server", "-m", model, "--port", "0", "-t", "2", *self.flags],
            stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on (\S+)", line)
            if found:
                self.url = found.group(1)
                return self
        raise RuntimeError("leq-server did not start: " + "".join(self.log))

    def __exit__(self, *_):
        self.process.terminate()
        try:
            rest = self.process.communicate(timeout=60)[1]
        finally:
            self.process.kill()
            self.folder.cleanup()
        if self.process.returncode != 0:
            raise RuntimeError(f"leq-server ended with {self.process.returncode}: {rest}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)
    print("ok", what)
