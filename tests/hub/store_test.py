"""Downloads of files that an ended download, a crash or a busy store left in parts.

    store_test.py TOOLS SOURCE WRITE_GGUF
"""

import pathlib
import sys
import unittest

from hub_test import CHECKPOINT, HubCase

DATA = CHECKPOINT["model.safetensors"]


class Parts(HubCase):
    def leave_part(self, data):
        """The file that an ended download has left."""
        part = pathlib.Path(str(self.blob()) + ".incomplete")
        part.parent.mkdir(parents=True)
        part.write_bytes(data)
        return part

    def test_a_part_that_is_whole_is_not_fetched_again(self):
        self.leave_part(DATA)
        self.pull()
        self.assertEqual(self.hub.store_requests, [])
        self.assertEqual(self.blob().read_bytes(), DATA)

    def test_a_part_that_is_too_long_begins_again(self):
        part = self.leave_part(DATA + b"more")
        self.pull()
        self.assertEqual([wanted for _, _, _, wanted in self.hub.store_requests], [None])
        self.assertEqual(self.blob().read_bytes(), DATA)
        self.assertFalse(part.exists())

    def test_a_part_of_other_bytes_costs_one_attempt(self):
        """The checksum refuses them, and the second attempt gets the file."""
        half = len(DATA) // 2
        for left in (DATA[:half] + bytes(len(DATA) - half), DATA[:half] + bytes(4096)):
            part = self.leave_part(left)
            self.refused("pull", "tales/Story-5M")
            self.assertFalse(part.exists() and part.read_bytes()[:len(left)] == left)
            self.pull()
            self.assertEqual(self.blob().read_bytes(), DATA)
            self.leq("rm", "tales/Story-5M", "--downloads")

    def test_a_part_with_another_beginning_begins_again(self):
        """Zeros and texts of a proxy stay after a crash; the header would be read before the checksum is known."""
        for left in (bytes(3000), bytes(8), b"<!DOCTYPE html>" * 100, DATA[:2000] + bytes(4096), DATA[:8] + b"{\"a\": 1" * 9999):
            self.leave_part(left)
            self.assertIn("is no beginning of it", self.pull().stderr)
            self.assertEqual(self.blob().read_bytes(), DATA)
            self.leq("rm", "tales/Story-5M", "--downloads")

    def test_attempts_are_counted_from_the_last_new_byte(self):
        self.hub.cut = [1000] * 7  # more than are tried without a new byte
        self.pull()
        self.assertEqual(self.blob().read_bytes(), DATA)
        self.assertEqual(len(self.hub.store_requests), 8)
        self.leq("rm", "tales/Story-5M", "--downloads")
        self.hub.cut, self.hub.store_requests = [1000] + [0] * 20, []
        self.assertIn("5 times; the same command continues", self.refused("pull", "tales/Story-5M"))
        self.assertEqual([wanted for _, _, _, wanted in self.hub.store_requests], [None] + ["bytes=1000-"] * 4)

    def answer_from_the_store(self, *answers):
        """(status, Retry-After) of its next answers, before any work; the same as FakeHub.busy for the other host."""
        handler, left, requests = self.hub.store.RequestHandlerClass, list(answers), self.hub.store_requests
        usual = handler.answer

        def answer(request, body):
            if not left:
                return usual(request, body)
            status, after = left.pop(0)
            requests.append((request.command, request.path, request.token(), request.headers.get("Range")))
            return request.reply(status, b"busy", {"Retry-After": after} if after else {}, body)

        handler.answer = answer

    def test_a_busy_store_is_asked_again(self):
        self.answer_from_the_store((503, "0"), (429, "0"), (408, "0"), (500, "0"))
        self.pull()
        self.assertEqual(self.blob().read_bytes(), DATA, "without the texts of errors")
        self.assertEqual(len(self.hub.store_requests), 5)

    def test_a_store_that_refuses_is_asked_once(self):
        for status, words in ((403, "refuses access"), (404, "has nothing of this name"), (410, "HTTP 410")):
            self.hub.store_requests.clear()
            self.answer_from_the_store((status, None))
            self.assertIn(words, self.refused("pull", "tales/Story-5M"))
            self.assertEqual(len(self.hub.store_requests), 1)
        self.pull()

    def test_a_store_that_stays_busy(self):
        self.answer_from_the_store(*[(503, "0")] * 5)
        self.assertIn("HTTP 503, 5 times; the same command continues", self.refused("pull", "tales/Story-5M"))
        self.pull()
        self.assertEqual(self.blob().read_bytes(), DATA)

    def test_what_a_token_file_may_be(self):
        self.hub.repositories["tales/Story-5M"].private = "secret"
        (self.folder / "mine").write_text(" secret \n")
        self.pull(env={"HF_TOKEN_PATH": "~/mine"})
        self.leq("rm", "tales/Story-5M", "--downloads")
        (self.folder / "hf" / "token").write_text("secret")
        self.pull(env={"HF_TOKEN": "", "HF_HUB_CACHE": str(self.folder / "other")})
        self.assertTrue((self.folder / "other" / "models--tales--Story-5M").exists())
        self.leq("rm", "tales/Story-5M")
        self.assertIn("or it is private", self.refused("pull", "tales/Story-5M", env={"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
