#!/usr/bin/env python3
"""A chat as its user sees it: leq-run on a pseudo-terminal with the storyteller example.

chat_terminal_test.py TOOLS SOURCE [unittest's arguments]"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

TOOLS, SOURCE = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLUMNS = 40


class Terminal:
    """A program whose three streams are one terminal."""

    def __init__(self, words, environment):
        self.text = ""
        self.process, self.side = pty.fork()
        if self.process == 0:
            os.execve(words[0], words, environment)
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))

    def wait(self, pattern, start=0, seconds=120):
        """Reads until the pattern stands after `start`; returns all text after that place."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text[start:], re.S):
            ready, _, _ = select.select([self.side], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"no {pattern!r} in {self.text[start:]!r}")
            try:
                self.text += os.read(self.side, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"no {pattern!r} before the end of {self.text[start:]!r}")
        return self.text[start:]

    def say(self, line, pattern="> $"):
        """Types a line; returns what follows it, without codes, up to the next prompt."""
        start = len(self.text)
        os.write(self.side, line.encode() + b"\r")
        # The prompt for the next line follows the mode of pasted texts.
        return self.wait(r"\x1b\[\?2004l.*" + r"\x1b\[\?2004h.*" + pattern.replace("$", r"(\x1b\[[0-9;]*m)*$"), start)

    def leave(self, line="/bye"):
        os.write(self.side, line.encode() + b"\r")
        while True:
            try:
                data = os.read(self.side, 65536)
            except OSError:
                data = b""
            if not data:
                break
            self.text += data.decode(errors="replace")
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = cls.folder / "story.leq"
        subprocess.run([TOOLS / "leq-quantize", SOURCE / "examples/storyteller", "-o", cls.model, "--type", "int8"],
                       check=True, capture_output=True)

    def chat(self, *words, name="state", environment={}):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LEQ_") and k != "NO_COLOR"}
        terminal = Terminal(
            [str(TOOLS / "leq-run"), str(self.model), "--temp", "0", "-n", "40", "-t", "1", *words],
            {**kept, "TERM": "xterm", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(self.folder / name), **environment})
        terminal.wait(r"type a message.*\x1b\[\?2004h")
        return terminal

    def plain_reply(self, message):
        run = subprocess.run([TOOLS / "leq-run", self.model, "--temp", "0", "-n", "40", "-t", "1", "-cnv"],
                             input=message + "\n", capture_output=True, text=True, check=True)
        return run.stdout

    def saved(self, name, state="state"):
        return json.loads((self.folder / state / "leq" / "chats" / f"{name}.json").read_text())

    def test_a_reply_is_wrapped_and_has_all_words(self):
        terminal = self.chat()
        shown = terminal.say("Tell me a story about a fox.")
        self.assertEqual(terminal.leave(), 0)
        self.assertIn("\x1b[1;32m", terminal.text, "the user's line")
        reply = self.plain_reply("Tell me a story about a fox.")
        lines = CODES.sub("", shown).replace("\r", "").split("\n")
        self.assertIn(reply.split(), [sum((line.split() for line in lines[first:last]), [])
                                      for first in range(len(lines)) for last in range(first, len(lines) + 1)])
        self.assertGreater(len([line for line in lines if len(line) > COLUMNS // 2]), 2)
        self.assertTrue(all(len(line) <= COLUMNS for line in lines if not line.startswith("leq-run:")), lines)

    def test_without_colours(self):
        for words, environment in ((["--no-color"], {}), ([], {"NO_COLOR": "1"})):
            terminal = self.chat(*words, environment=environment)
            terminal.say("Hello!")
            self.assertEqual(terminal.leave("/exit"), 0)
            self.assertNotRegex(terminal.text, r"\x1b\[[0-9;]*m")

    def test_a_block_of_lines_is_one_message(self):
        terminal = self.chat("--chat", "block")
        for line in ('"""Tell me', "/a story"):
            start = len(terminal.text)
            os.write(terminal.side, line.encode() + b"\r")
            terminal.wait(r"\| ", start)
        terminal.say('about a fox."""')
        self.assertEqual(terminal.leave(), 0)
        self.assertEqual(self.saved("block")["messages"][0], {"role": "user", "content": "Tell me\n/a story\nabout a fox."})

    def test_commands(self):
        terminal = self.chat()
        for line, expected in (("/?", "/load NAME\\|FILE.*/set nothink.*begins and ends"), ("/show", "5.5 M parameters"),
                               ("/show settings", "temp 0, .*seed"), ("/show chatss", "expected one of info, system"),
                               ("/set parameter top_k 7", "top-k is 7 from now on"), ("/set seed 4", "seed is 4"),
                               ("/set verbose now", "takes no value"), ("/set format xml", "expected json"),
                               ("/set wrod 1", "no setting is called wrod"), ("/set system Be brief.", "system prompt changed"),
                               ("/show system", "system prompt: Be brief."), ("/clear", "a new conversation"),
                               ("/byee", "did you mean /bye"), ("/set verbose", ">")):
            self.assertRegex(re.sub(r"\s+", " ", CODES.sub("", terminal.say(line))), expected, line)
        self.assertIn("tokens/s", terminal.say("Hello!"))
        terminal.say("/set format json")
        self.assertEqual(terminal.leave(), 0)

    def test_a_file_before_the_message(self):
        text = self.folder / "notes.txt"
        text.write_text("A fox and a hen.\n")
        terminal = self.chat("--chat", "notes")
        terminal.say(f"/read {text}")
        terminal.say("Go on.")
        self.assertEqual(terminal.leave(), 0)
        self.assertEqual(self.saved("notes")["messages"][0]["content"], "A fox and a hen.\n\nGo on.")

    def test_chats_by_name(self):
        terminal = self.chat("--chat", "work", "-sys", "You tell stories.")
        terminal.say("Hello!")
        first = self.saved("work")
        self.assertEqual([m["role"] for m in first["messages"]], ["system", "user", "assistant"])
        terminal.say("/save other")
        self.assertEqual(terminal.leave(), 0)
        terminal = self.chat("--chat", "work")
        self.assertIn("the chat work goes on after 3 messages", terminal.text)
        terminal.say("And then?")
        self.assertEqual(self.saved("work")["messages"][:3], first["messages"])
        self.assertEqual(len(self.saved("work")["messages"]), 5)
        self.assertIn("other, work", terminal.say("/show chats"))
        terminal.say("/load other")
        self.assertEqual(self.saved("work")["messages"], first["messages"])
        self.assertEqual(terminal.leave(), 0)
        bad = subprocess.run([TOOLS / "leq-run", self.model, "--chat", "../x"], capture_output=True, text=True)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("'../x' is not a chat's name", bad.stderr)

    def test_a_full_context_leaves_out_the_start(self):
        terminal = self.chat("--chat", "long", "-c", "160")
        for _ in range(6):
            terminal.say("Tell me a story about a fox.")
        self.assertRegex(re.sub(r"\s+", " ", terminal.text), r"context of 160 positions is full: the first \d+ messages are left out")
        self.assertEqual(terminal.leave(), 0)
        chat = self.saved("long")
        self.assertEqual(len(chat["messages"]), 12)
        self.assertGreater(chat["left_out"], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
