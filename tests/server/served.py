"""A leq-server on a free port with the storyteller, for the scripts beside this one."""

import pathlib
import re
import subprocess
import sys
import tempfile
import threading

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIPPED)


class Served:
    """with Served(tools, "--api-key", "k") as served: ... served.url

    The model is storyteller.leq, or of another checkpoint; types=("int8", "int4"): a folder of one
    model of each type, served by --models-dir."""

    def __init__(self, tools, *flags, types=None, checkpoint=SOURCE / "examples/storyteller"):
        self.tools = pathlib.Path(tools)
        self.flags = flags
        self.types = types
        self.checkpoint = checkpoint

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="leq-served-")
        folder = pathlib.Path(self.folder.name)
        if self.types is None:
            self.model = ("-m", self.quantized(folder / f"{self.checkpoint.name}.leq", "int8"))
        else:
            for kind in self.types:
                self.quantized(folder / f"{kind}.leq", kind)
            self.model = ("--models-dir", folder)
        self.start("--port", "0")
        return self

    def quantized(self, path, kind):
        subprocess.run([self.tools / "leq-quantize", self.checkpoint, "-o", path,
                        "--type", kind, "--method", "rtn", "--samples", "128"], check=True, capture_output=True)
        return path

    def start(self, *flags):
        """A new process; returns once it listens."""
        self.process = subprocess.Popen(
            [self.tools / "leq-server", *self.model, "-t", "2", *self.flags, *flags],
            stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on (\S+:(\d+))", line)
            if found:
                self.url, self.port = found.group(1), int(found.group(2))
                # Its pipe never fills.
                self.reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,))
                self.reader.start()
                return
        raise RuntimeError("leq-server did not start: " + "".join(self.log))

    def wait(self):
        try:
            self.process.wait(timeout=60)
        finally:
            self.process.kill()
            self.reader.join()

    def stop(self, signal_number):
        """Ends it as it should end: with status 0."""
        self.process.send_signal(signal_number)
        self.wait()
        if self.process.returncode != 0:
            raise RuntimeError(f"leq-server ended with {self.process.returncode}: {self.log}")

    def kill(self):
        self.process.kill()
        self.wait()

    def __exit__(self, *_):
        try:
            if self.process.poll() is None:
                self.stop(15)
        finally:
            self.process.kill()
            self.folder.cleanup()


def check(condition, what):
    if not condition:
        raise AssertionError(what)
    print("ok", what)
