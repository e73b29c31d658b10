"""docs/python.md as a doctest, in a folder where `examples` is the project's."""

import doctest
import os
import pathlib
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["LEQ_SOURCE"])

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.symlink(SOURCE / "examples", "examples")
    found = doctest.testfile(str(SOURCE / "docs/python.md"), module_relative=False)
    os.chdir("/")
print(f"docs/python.md: {found.attempted} examples, {found.failed} failed")
sys.exit(1 if found.failed or found.attempted < 20 else 0)
