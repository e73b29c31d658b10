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

    def type(self, line, pattern):
        """Types a line and waits for a text behind it."""
        start = len(self.text)
        os.write(self.side, line.encode() + b"\r")
        return self.wait(pattern, start)

    def leave(self, line="/bye"):
        if line is not None:
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

    def chat(self, *words, model=None, name="state", environment={}, flags=("--temp", "0", "-n", "40")):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LEQ_") and k != "NO_COLOR"}
        terminal = Terminal(
            [str(TOOLS / "leq-run"), str(model or self.model), *flags, "-t", "1", *words],
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

    def test_a_question_is_answered_and_nothing_else(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LEQ_") and k != "NO_COLOR"}
        words = [str(TOOLS / "leq"), "run", str(self.model), "Tell me a story about a fox.", "--temp", "0", "-n", "40", "-t", "1"]
        environment = {**kept, "TERM": "xterm", "LC_ALL": "C.UTF-8", "LEQ_HISTORY": ""}
        terminal = Terminal([*words, "--verbose"], environment)
        self.assertEqual(terminal.leave(None), 0)
        self.assertRegex(terminal.text, r"(?s)device: cpu.*tokens/s")
        self.assertNotRegex(terminal.text, "type a message|> Tell")
        for columns in (40, 20):
            terminal = Terminal(words, environment)
            fcntl.ioctl(terminal.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            self.assertEqual(terminal.leave(None), 0)
            self.assertEqual(CODES.sub("", terminal.text).split(), self.plain_reply("Tell me a story about a fox.").split())

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
                               ("/show settings", "temp 0, .*seed .*num_predict 40, num_ctx"),
                               ("/show chatss", "expected one of info, system"),
                               ("/? set", "/set nothink"), ("/? shortcuts", "Ctrl-A"), ("/? nothing", "expected set, show"),
                               ("/list", "leq-run: "), ("/show license", "leq show USER/REPOSITORY"),
                               ("/set parameter num_gpu 1", "/set: num_gpu: a model runs on one device"),
                               ("/set parameter num_thread 4", "is chosen at the start: --threads 4"),
                               ("/set parameter temperatur 1", "did you mean temperature"),
                               ("/set parameter num_predict x", "num_predict: expected a number of tokens"),
                               ("/set parameter mirostat_tau 4", "mirostat-ent is 4"),
                               ("/set nowordwrap", "words are not wrapped"), ("/load none", "no chat is called none"),
                               ("/set parameter top_k 7", "top-k is 7 from now on"), ("/set seed 4", "seed is 4"),
                               ("/set verbose now", "takes no value"), ("/set format xml", "expected json"),
                               ("/set wrod 1", "wrod: no parameter of this name"), ("/set system Be brief.", "system prompt changed"),
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
        self.assertRegex(terminal.say("/show chats"), "other, (.*, )?work")
        terminal.say("/load other")
        self.assertEqual(self.saved("work")["messages"], first["messages"])
        self.assertEqual(terminal.leave(), 0)
        bad = subprocess.run([TOOLS / "leq-run", self.model, "--chat", "../x"], capture_output=True, text=True)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("'../x' is not a chat's name", bad.stderr)

    def test_a_chat_is_left_and_taken_up_with_its_settings(self):
        terminal = self.chat("--chat", "kept")
        for line in ("/set system Be brief.", "/set parameter temperature 0.25", "/set parameter seed 7",
                     "/set parameter num_predict 9", '/set parameter stop "the end" X', "/set nothink",
                     "/set parameter repeat_penalty 1.5"):
            terminal.say(line)
        self.assertEqual(terminal.leave(), 0)
        saved = self.saved("kept")
        self.assertEqual((saved["max_tokens"], saved["stop"], saved["thinking"]), (9, ["the end", "X"], False))
        self.assertEqual((saved["settings"]["temp"], saved["settings"]["seed"]), (0.25, 7))
        # Without flags all is as it was; a flag wins over it.
        for words, expected in (([], "temp 0.25, .*seed 7, num_predict 9, .*stop the end, X"),
                                (["--temp", "0.5", "-n", "5"], "temp 0.5, .*repeat-penalty 1.5, .*seed 7, num_predict 5,")):
            terminal = self.chat("--chat", "kept", name="state", flags=words)
            self.assertRegex(terminal.text, r"temp 0\.2?5 \((chat|flag)\)")
            self.assertRegex(re.sub(r"\s+", " ", terminal.say("/show parameters")), expected)
            self.assertIn("Be brief.", terminal.say("/show system"))
            self.assertEqual(terminal.leave(), 0)
        self.assertRegex(self.chat("--chat", "kept", flags=[]).say("/show modelfile"),
                         r'(?s)FROM .*SYSTEM """Be brief\.""".*PARAMETER temperature 0\.25.*PARAMETER num_predict 9.*'
                         r'PARAMETER stop "the end"')

    def test_a_chat_wins_over_a_created_name(self):
        file = self.folder / "Modelfile"
        file.write_text(f"FROM {self.model}\nSYSTEM Be brief.\nPARAMETER temperature 0.3\nPARAMETER num_predict 20\n")
        models = {"LEQ_MODELS": str(self.folder / "models")}
        subprocess.run([TOOLS / "leq", "create", "brief", "-f", file], env={**os.environ, **models}, check=True, capture_output=True)
        terminal = self.chat("--chat", "own", model="brief", environment=models, flags=[])
        self.assertRegex(terminal.text, r"temp 0\.3 \(model\)")
        for line in ("/set temp 0.7", "/set parameter num_predict 9", "/set system Be long."):
            terminal.say(line)
        self.assertEqual(terminal.leave(), 0)
        terminal = self.chat("--chat", "own", model="brief", environment=models, flags=["--top-k", "5"])
        self.assertRegex(re.sub(r"\s+", " ", terminal.say("/show settings")), "temp 0.7, top-k 5, .*num_predict 9,")
        self.assertIn("Be long.", terminal.say("/show system"))
        self.assertEqual(terminal.leave(), 0)

    def test_a_stop_text_and_a_length_end_a_reply(self):
        terminal = self.chat("--chat", "ends")
        whole = terminal.say("Tell me a story about a fox.")
        first, word = self.saved("ends")["messages"][1]["content"].split()[:2]
        terminal.say("/clear")
        terminal.say(f"/set parameter stop zzz {word}")
        terminal.say("Tell me a story about a fox.")
        self.assertEqual(self.saved("ends")["messages"][1]["content"].strip(), first, whole)
        terminal.say("/clear")
        terminal.say("/set parameter stop")
        self.assertIn("-n 3 tokens", terminal.say("/set parameter num_predict 3") + terminal.say("Tell me a story about a fox."))
        self.assertEqual(terminal.leave(), 0)

    def test_another_context(self):
        terminal = self.chat("--chat", "wide", "-c", "256")
        terminal.say("Tell me a story about a fox.")
        before = self.saved("wide")["messages"]
        self.assertIn("the context has 192 tokens", terminal.say("/set parameter num_ctx 192"))
        self.assertIn("num_ctx 192", terminal.say("/show settings"))
        # Greedy, so that the replies equal those of a chat with this context from the start.
        terminal.say("And then?")
        after = self.saved("wide")
        self.assertEqual((after["messages"][:2], after["context"]), (before, 192))
        # Another context has the format that was last chosen.
        for line, size, kept in (("/set format json", 200, "json"), ("/set noformat", 208, None)):
            terminal.say(line)
            terminal.say(f"/set parameter num_ctx {size}")
            self.assertEqual(self.saved("wide").get("format"), kept)
        self.assertRegex(re.sub(r"\s+", " ", terminal.say("/set parameter num_ctx 999999999")), "error: .*num_ctx: expected a number of tokens, at most")
        self.assertEqual(terminal.leave(), 0)
        terminal = self.chat("--chat", "same", "-c", "192")
        terminal.say("Tell me a story about a fox.")
        terminal.say("And then?")
        self.assertEqual(self.saved("same")["messages"], after["messages"])
        self.assertEqual(terminal.leave(), 0)

    def test_a_system_prompt_of_several_lines(self):
        terminal = self.chat("--chat", "lines")
        terminal.type('/set system """You tell', r"\| ")
        terminal.type("/short", r"\| ")
        terminal.say('stories."""')
        terminal.say("Hello!")
        self.assertEqual(self.saved("lines")["messages"][0], {"role": "system", "content": "You tell\n/short\nstories."})
        self.assertEqual(terminal.leave(), 0)

    def test_texts_of_others_command_no_terminal(self):
        prompts = self.folder / "prompts.txt"
        prompts.write_text("Once \x1b]0;owned\x07 upon\n")
        for flags in (("-np", "2"), ("--raw",), ("-cnv", "-st")):
            terminal = Terminal(
                [str(TOOLS / "leq-run"), str(self.model), "-f", str(prompts), "-n", "4", "-t", "1", "--no-color", *flags],
                {**os.environ, "TERM": "xterm", "LEQ_HISTORY": ""})
            self.assertEqual(terminal.leave(None), 0, terminal.text)
            self.assertNotIn("\x1b]", terminal.text, flags)
            self.assertEqual("\\x1b]0;owned" in terminal.text, flags[-1] != "-st", flags)
        terminal = self.chat("-cnv", "-f", str(prompts), "--no-color")
        self.assertEqual(terminal.leave(), 0)
        self.assertNotIn("\x1b]", terminal.text)

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        terminal = Terminal(["/bin/sh", "-c", 'stty -a > "$0"; "$@"; stty -a > "$0.after"', str(self.folder / "modes"),
                             str(TOOLS / "leq-run"), str(self.model), "-t", "1"],
                            {**os.environ, "TERM": "xterm", "LEQ_HISTORY": ""})
        terminal.wait(r"type a message.*\x1b\[\?2004h")
        children = pathlib.Path(f"/proc/{terminal.process}/task/{terminal.process}/children").read_text().split()
        os.kill(int(children[0]), 15)
        terminal.leave(None)
        before, after = ((self.folder / name).read_text() for name in ("modes", "modes.after"))
        self.assertEqual(after, before)

    def test_a_full_context_leaves_out_the_start(self):
        terminal = self.chat("--chat", "long", "-c", "160")
        for _ in range(6):
            terminal.say("Tell me a story about a fox.")
        self.assertRegex(re.sub(r"\s+", " ", terminal.text), r"context of 160 positions is full: the first \d+ messages are left out")
        self.assertNotRegex(CODES.sub("", terminal.text), r"a larger -c holds more\r*\n ", "the blank before the next word")
        self.assertEqual(terminal.leave(), 0)
        chat = self.saved("long")
        self.assertEqual(len(chat["messages"]), 12)
        self.assertGreater(chat["left_out"], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
