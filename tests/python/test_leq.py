"""The Python package: replies, numbers, files, and what it refuses."""

import gc
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import typing
import unittest
import warnings
import weakref

import leq
import numpy
from story import PATH, PROMPT, SOURCE, STORY, WORK, open_model, setUpModule, tearDownModule  # noqa: F401


class Replies(unittest.TestCase):
    def test_a_batch_is_what_its_replies_are_alone(self):
        prompts = [PROMPT, "The dog", "Lily and Tom", "One day", "It was dark"]
        with open_model() as alone, open_model(sequences=3, context=3072) as together:
            replies = together.generate(prompts, max_tokens=24, seed=4)
            self.assertEqual([reply.text for reply in replies],
                             [alone.generate(one, max_tokens=24, seed=4).text for one in prompts])
            self.assertEqual(together.generate([]), [])

    def test_ids_are_a_prompt(self):
        with open_model() as model:
            ids = model.tokenizer.encode(PROMPT)
            self.assertEqual(model.generate(ids, max_tokens=8, seed=1).tokens,
                             model.generate(PROMPT, max_tokens=8, seed=1).tokens)

    def test_bytes_of_any_kind_are_a_text(self):
        with open_model() as model:
            text = PROMPT.encode()
            self.assertEqual(len({model.generate(one, max_tokens=8, seed=1).text
                                  for one in (PROMPT, text, bytearray(text), memoryview(text))}), 1)

    def test_a_returned_seed_repeats_the_reply(self):
        with open_model() as model:
            for seed in (-5, -2**63, 2**63 - 1, None):
                first = model.generate(PROMPT, max_tokens=8, **({} if seed is None else {"seed": seed}))
                self.assertEqual(first.text, model.generate(PROMPT, max_tokens=8, seed=first.seed).text)
                self.assertIn(first.seed, range(2**32) if seed is None else [seed])

    def test_a_stream_joins_to_the_reply(self):
        with open_model() as model:
            with model.stream(PROMPT, max_tokens=24, seed=1, logprobs=1) as stream:
                pieces = list(stream)
            whole = model.generate(PROMPT, max_tokens=24, seed=1, logprobs=1)
            self.assertEqual("".join(piece.text for piece in pieces), whole.text)
            self.assertEqual(sum((piece.tokens for piece in pieces), []), whole.tokens)
            self.assertEqual(sum((piece.logprobs for piece in pieces), []), whole.logprobs[:24])
            for piece in pieces:
                self.assertTrue(whole.text.encode()[piece.offset:].startswith(piece.text.encode()))
            self.assertEqual(stream.reply.tokens, whole.tokens)

    def test_a_closed_or_collected_stream_is_cancelled(self):
        before = threading.active_count()
        with open_model(context=1024) as model:
            stream = model.stream(PROMPT, ignore_eos=True)
            next(stream)
            stream.close()
            self.assertEqual(list(stream), [])
            stream = model.stream(PROMPT, ignore_eos=True)
            next(stream)
            del stream
            gc.collect()
            self.assertEqual(threading.active_count(), before)
            self.assertEqual(model.generate(PROMPT, max_tokens=2, seed=1).stop, "token_limit")

    def test_cancel_from_another_thread(self):
        cancel = leq.Cancel()
        with open_model() as model:
            threading.Timer(0.05, cancel.request).start()
            reply = model.generate(PROMPT, ignore_eos=True, cancel=cancel)
        self.assertEqual(reply.stop, "interrupted")

    def test_several_threads_share_a_model(self):
        prompts = [PROMPT, "The dog", "Lily", "One day"]
        with open_model(sequences=2, context=2048) as model:
            expected = [model.generate(one, max_tokens=16, seed=3).text for one in prompts]
            found = [None] * len(prompts)

            def write(i):
                found[i] = model.generate(prompts[i], max_tokens=16, seed=3).text
            threads = [threading.Thread(target=write, args=(i,)) for i in range(len(prompts))]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            self.assertEqual(found, expected)

    def test_the_gil_is_released(self):
        ticks, done = 0, threading.Event()
        with open_model() as model:
            thread = threading.Thread(
                target=lambda: (model.generate(PROMPT, max_tokens=300, ignore_eos=True), done.set()))
            thread.start()
            while not done.wait(0.001):
                ticks += 1
            thread.join()
        self.assertGreater(ticks, 3)

    def test_a_schema_holds_the_reply(self):
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                  "additionalProperties": False}
        with open_model() as model:
            reply = model.generate(PROMPT, schema=schema, max_tokens=40, temperature=0)
            self.assertIsInstance(json.loads(reply.text)["a"], bool)
            reply = model.generate(PROMPT, grammar='root ::= "yes" | "no"', temperature=0)
            self.assertIn(reply.text, ("yes", "no"))

    def test_chats_are_openais(self):
        messages = [{"role": "user", "content": "Tell a story"}]
        with open_model() as model:
            whole = model.create_chat_completion(messages, max_tokens=12, seed=5)
            self.assertEqual(whole["object"], "chat.completion")
            text = whole["choices"][0]["message"]["content"]
            chunks = list(model.create_chat_completion(messages, max_tokens=12, seed=5, stream=True))
            self.assertEqual("".join(chunk["choices"][0]["delta"].get("content", "")
                                     for chunk in chunks if chunk["choices"]), text)
            ids = model.tokenizer.apply_chat_template(messages)
            self.assertEqual(model.generate(ids, max_tokens=12, seed=5).text, text)
            self.assertIn("[INST] Tell a story [/INST]",
                          model.tokenizer.apply_chat_template(messages, tokenize=False))
            done = model.create_completion(PROMPT, max_tokens=6, temperature=0)
            self.assertEqual(done["choices"][0]["text"],
                             model.generate(PROMPT, max_tokens=6, temperature=0).text)


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def run_to_its_end(script):
    """Exit status, output and errors of a Python program that ends while its threads still run."""
    done = subprocess.run([sys.executable, "-c", "import leq, os, sys, threading, time\n"
                           "model = leq.Model(sys.argv[1], context=1024)\n" + script, PATH],
                          capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class Ends(unittest.TestCase):
    def test_a_model_is_freed_with_its_last_reference(self):
        gc.disable()  # no collector helps
        try:
            sizes = []
            for _ in range(24):
                model = open_model(load="read")
                model.generate("a", max_tokens=1)
                model.tokenizer.encode("a")
                list(model.stream("a", max_tokens=2))
                gone = weakref.ref(model)
                del model
                self.assertIsNone(gone())
                sizes.append(resident_bytes())
        finally:
            gc.enable()
        self.assertLess(sizes[-1] - sizes[3], 4 * PATH.stat().st_size)  # of 20 models

    def test_a_tokenizer_outlives_its_model(self):
        model = open_model()
        tokenizer, ids = model.tokenizer, model.tokenizer.encode(PROMPT)
        del model
        self.assertEqual(tokenizer.encode(PROMPT), ids)

    def test_any_thread_may_close_a_stream(self):
        with open_model() as model:
            stream = model.stream(PROMPT, ignore_eos=True)
            pieces = []
            readers = [threading.Thread(target=lambda: pieces.extend(stream), daemon=True)
                       for _ in range(3)]
            [reader.start() for reader in readers]
            while not pieces:
                time.sleep(0.001)
            closer = threading.Thread(target=stream.close, daemon=True)
            closer.start()
            for thread in [closer, *readers]:
                thread.join(30)
                self.assertFalse(thread.is_alive())
            self.assertEqual(list(stream), [])

    def test_readers_of_one_stream_share_its_pieces(self):
        with open_model() as model:
            whole = model.generate(PROMPT, max_tokens=40, seed=1, ignore_eos=True)
            stream, pieces = model.stream(PROMPT, max_tokens=40, seed=1, ignore_eos=True), []
            readers = [threading.Thread(target=lambda: pieces.extend(stream), daemon=True)
                       for _ in range(4)]
            [reader.start() for reader in readers]
            [reader.join(30) for reader in readers]
            self.assertFalse(any(reader.is_alive() for reader in readers))
            self.assertEqual("".join(piece.text for piece in sorted(pieces, key=lambda p: p.offset)),
                             whole.text)

    def test_a_program_ends_whatever_its_daemon_threads_do(self):
        works = {
            "generate": "model.generate('Once', ignore_eos=True)",
            "stream": "[0 for piece in model.stream('Once', ignore_eos=True)]",
            "stalled": "held.append(model.stream('Once', ignore_eos=True)); time.sleep(99)",
            "feed": "model.feed([5] * 64); model.rewind(0)",
            "callback": "model.perplexity('a dog ' * 3000, window=64, progress=lambda *_: time.sleep(0.01))",
            "chat": "list(model.create_completion('Once', stream=True, ignore_eos=True))",
        }
        for name, work in works.items():
            with self.subTest(name):
                self.assertEqual(run_to_its_end(
                    f"held = []\ndef run():\n  while True: {work}\n"
                    "for _ in range(2): threading.Thread(target=run, daemon=True).start()\n"
                    "time.sleep(0.3)\n"), (0, b"", b""))

    def test_a_forked_process_ends(self):
        self.assertEqual(run_to_its_end(
            "stream = model.stream('Once', ignore_eos=True)\nnext(stream)\n"
            "import warnings; warnings.simplefilter('ignore')\n"
            "child = os.fork()\nif child == 0: os._exit(len(list(stream)))\n"
            "assert os.waitpid(child, 0)[1] == 0\nstream.close()\n"), (0, b"", b""))

    def test_a_forked_process_gives_up_what_it_inherits(self):
        for work in ("sys.exit(0)", "model.close()", "del model",
                     "model = leq.Model(sys.argv[1], context=64); model.generate('Once', max_tokens=2)"):
            with self.subTest(work):
                self.assertEqual(run_to_its_end(
                    "model.generate('Once', max_tokens=2)\n"
                    "import signal, warnings; warnings.simplefilter('ignore')\n"
                    f"child = os.fork()\nif child == 0:\n  signal.alarm(30)\n  {work}\n  os._exit(0)\n"
                    "assert os.waitpid(child, 0)[1] == 0\n"), (0, b"", b""))


class Numbers(unittest.TestCase):
    def test_logits_are_rows_without_a_copy_that_stay(self):
        with open_model() as model:
            ids = model.tokenizer.encode("Once upon a time there was a dog")
            rows = model.logits(ids)
            self.assertEqual((rows.shape, rows.dtype), ((len(ids), model.info["vocab"]), numpy.float32))
            self.assertFalse(rows.flags.owndata)
            kept = rows.copy()
            model.rewind(0)
            for i, token in enumerate(ids):
                numpy.testing.assert_array_equal(model.feed([token]), kept[i])
            self.assertEqual(model.position, len(ids))
        numpy.testing.assert_array_equal(rows, kept)  # after the model was closed, too

    def test_logprobs_are_those_of_the_logits(self):
        with open_model() as model:
            ids = model.tokenizer.encode(PROMPT)
            reply = model.generate(ids, max_tokens=6, temperature=0, logprobs=2)
            rows = model.logits(ids + reply.tokens[:-1])[len(ids) - 1:].astype(numpy.float64)
            logs = rows - rows.max(1, keepdims=True)
            logs -= numpy.log(numpy.exp(logs).sum(1, keepdims=True))
            numpy.testing.assert_allclose(
                [logs[i, token] for i, token in enumerate(reply.tokens)], reply.logprobs, atol=1e-5)
            self.assertEqual([next(iter(top)) for top in reply.top_logprobs], reply.tokens)

    def test_drawn_token_by_token(self):
        with open_model() as model:
            ids = model.tokenizer.encode(PROMPT)
            expected = model.generate(ids, max_tokens=12, seed=21).tokens
            context, row = list(ids), model.feed(ids)
            for i in range(12):
                context.append(model.sample(row, context, i, seed=21))
                row = model.feed(context[-1:])
            self.assertEqual(context[len(ids):], expected)

    def test_embeddings(self):
        with open_model() as model:
            both = model.embed(["a small dog", "a big cat"])
            self.assertEqual(both.shape, (2, model.info["width"]))
            numpy.testing.assert_allclose((both ** 2).sum(1), 1, atol=1e-5)
            mean = model.embed("a small dog", normalize=False)
            numpy.testing.assert_allclose(mean / numpy.linalg.norm(mean), both[0], atol=1e-6)
            answer = model.create_embedding("a small dog")
            numpy.testing.assert_array_equal(numpy.float32(answer["data"][0]["embedding"]), both[0])
            short = model.embed("a small dog", dimensions=8)
            numpy.testing.assert_allclose(short, mean[:8] / numpy.linalg.norm(mean[:8]), atol=1e-6)
            with self.assertRaises(leq.SettingError):
                model.embed("a small dog", dimensions=0)
            with self.assertWarnsRegex(UserWarning, "pooled"):
                model.embed("a small dog")
        with open_model(pooling="none") as model:
            rows = model.embed("a small dog")
            self.assertEqual(rows.shape, (len(model.tokenizer.encode("a small dog")), model.info["width"]))
            numpy.testing.assert_allclose(rows.mean(0), mean, atol=1e-5)

    def test_embeddings_of_sentence_transformers(self):
        folder = SOURCE / "tests/golden/embeddings"
        golden = json.loads((folder / "golden.json").read_text())
        file = pathlib.Path(WORK.name) / "embeddings.leq"
        leq.quantize(folder, file, type="f32")
        options = {"key_type": "f32", "value_type": "f32", "context": 512}
        with leq.Model(file, **options) as model, warnings.catch_warnings():
            warnings.simplefilter("error")
            numpy.testing.assert_allclose(model.embed(golden["texts"]), golden["last"], atol=1e-5)
            numpy.testing.assert_allclose(model.embed(golden["texts"], dimensions=8), golden["last_of_8"],
                                          atol=1e-5)
        with leq.Model(file, pooling="mean", **options) as model:
            numpy.testing.assert_allclose(model.embed(golden["texts"]), golden["mean"], atol=1e-5)

    def test_states_in_files(self):
        file = pathlib.Path(WORK.name) / "prompt.leqprm"
        prompt = "Once upon a time there was a small dog who liked to sing"
        with open_model() as model:
            expected = model.generate(prompt, max_tokens=8, seed=1).text
            self.assertGreater(model.save_state(prompt, file), 5)
        with open_model() as model:
            model.load_state(file)
            reply = model.generate(prompt, max_tokens=8, seed=1)
            self.assertEqual(reply.text, expected)
            self.assertGreater(reply.cached_tokens, 5)

    def test_memory_is_planned(self):
        plan = leq.plan_memory(PATH, context=512)
        self.assertEqual(plan["total_bytes"],
                         plan["weight_bytes"] + plan["kv_bytes"] + plan["scratch_bytes"])
        self.assertGreater(leq.plan_memory(PATH, context=1024)["kv_bytes"], plan["kv_bytes"])


class Files(unittest.TestCase):
    def test_guessed_tokens_change_no_reply(self):
        texts = set()
        for how in (True, False, "auto", "ngram", "off"):
            with open_model(speculate=how) as model:
                texts.add(model.generate(PROMPT, max_tokens=48, seed=3).text)
        self.assertEqual(len(texts), 1)

    def test_bytes_are_a_model(self):
        with leq.Model(PATH.read_bytes(), context=512) as model, open_model() as other:
            self.assertEqual(model.generate(PROMPT, max_tokens=8, temperature=0).text,
                             other.generate(PROMPT, max_tokens=8, temperature=0).text)
            answer = model.create_completion(PROMPT, max_tokens=1)
        self.assertEqual(answer["model"], "(memory)")
        self.assertRaisesRegex(leq.InputError, r"^\(memory\): ", leq.Model, b"no model")

    def test_lines_for_people_go_to_logging(self):
        with self.assertLogs("leq", "INFO") as logged:
            leq.quantize(STORY, pathlib.Path(WORK.name) / "logged.leq", type="int8", judge=True)
        self.assertRegex(logged.output[0], "gate +KL 0")


class Refusals(unittest.TestCase):
    def test_errors_are_of_their_kind(self):
        cut = pathlib.Path(WORK.name) / "cut.leq"
        cut.write_bytes(PATH.read_bytes()[:100000])
        with open_model(context=64) as model:
            for kind, builtin, call in (
                    (leq.FileError, OSError, lambda: leq.Model("/there/is/none.leq")),
                    (leq.InputError, ValueError, lambda: leq.Model(cut)),
                    (leq.SettingError, ValueError, lambda: leq.Model(PATH, key_type="int7")),
                    (leq.SettingError, ValueError, lambda: leq.Model(PATH, context=2**40)),
                    (leq.SettingError, ValueError, lambda: leq.Model(PATH, load="slowly")),
                    (leq.SettingError, ValueError, lambda: leq.Model(PATH, speculate="mtp")),
                    (leq.SettingError, ValueError, lambda: leq.Model(PATH, speculate="magic")),
                    (leq.ContextFullError, ValueError, lambda: model.generate("dog " * 100)),
                    (leq.SettingError, ValueError, lambda: model.generate("a", temperature=-1)),
                    (leq.SettingError, ValueError, lambda: model.generate("a", temprature=1)),
                    (leq.InputError, ValueError, lambda: model.generate("a", schema={"type": 3})),
                    (leq.InputError, ValueError, lambda: model.generate("a", grammar="root ::= (")),
                    (leq.InputError, ValueError, lambda: model.generate([1, 10**6])),
                    (leq.InputError, ValueError, lambda: model.generate("a", stop=object())),
                    (leq.UsageError, RuntimeError, lambda: model.rewind(10)),
                    (leq.SettingError, ValueError, lambda: model.perplexity("a", windw=3)),
                    (leq.InputError, ValueError, lambda: model.check_receipt("{}")),
                    (leq.SettingError, ValueError,
                     lambda: model.generate("a", grammar='root ::= "a"', receipt=True)),
                    (leq.SettingError, ValueError,
                     lambda: leq.quantize(STORY, "/tmp/x.leq", recipe="q4", target_bpw=4)),
                    (leq.Error, ValueError, lambda: leq.quantize("/nowhere", "/tmp/x.leq"))):
                with self.assertRaises(kind) as caught:
                    call()
                self.assertIsInstance(caught.exception, builtin)
                self.assertIsInstance(caught.exception, leq.Error)
                self.assertTrue(str(caught.exception))
            messages = [{"role": "user", "content": "a"}]
            for setting, call in (
                    ("top_p", lambda: model.generate("a", top_p=3)),
                    ("temprature", lambda: model.generate("a", temprature=1)),
                    ("stop", lambda: model.generate("a", stop=object())),
                    ("schema", lambda: model.generate("a", schema={"type": {1}})),
                    ("schema", lambda: model.generate("a", schema={"type": 3})),
                    ("grammar", lambda: model.generate("a", grammar="root ::= (")),
                    ("windw", lambda: model.perplexity("a", windw=3)),
                    ("load", lambda: leq.Model(PATH, load="slowly")),
                    ("key_type", lambda: leq.Model(PATH, key_type="int7")),
                    ("top_p", lambda: model.create_chat_completion(messages, top_p=3)),
                    ("response_format", lambda: model.create_chat_completion(messages, response_format={1})),
                    ("response_format", lambda: model.create_chat_completion(
                        messages, response_format={"type": "json_schema", "json_schema": {
                            "name": "x", "strict": True, "schema": {"contains": {"const": 1}}}}))):
                with self.assertRaises(leq.Error) as caught:
                    call()
                self.assertEqual(caught.exception.setting, setting)
                self.assertTrue(str(caught.exception).startswith(setting), caught.exception)

    def test_wrong_types_are_told_with_their_setting(self):
        with open_model() as model:
            for words, call in (
                    ("max_tokens", lambda: model.generate("a", max_tokens="5")),
                    ("max_tokens", lambda: model.stream("a", max_tokens=1.5)),
                    ("logprobs", lambda: model.generate("a", logprobs=2**40)),
                    ("grammar", lambda: model.generate("a", grammar=5)),
                    ("cancel", lambda: model.generate("a", cancel=5)),
                    ("prompt", lambda: model.generate(5)),
                    ("prompt", lambda: model.generate([1, 2.5])),
                    ("prompt", lambda: model.generate({"role": "user"})),
                    ("prompt", lambda: model.generate({1, 2})),
                    ("prompt", lambda: model.generate(numpy.array(5))),
                    ("text", lambda: model.tokenizer.encode(5)),
                    ("tokens", lambda: model.tokenizer.decode(["a"])),
                    ("tokens", lambda: model.feed(3)),
                    ("position", lambda: model.rewind("a")),
                    ("window", lambda: model.perplexity("a", window="a")),
                    ("protocol", lambda: model.perplexity("a", protocol=3)),
                    ("threads", lambda: leq.Model(PATH, threads="two")),
                    ("context", lambda: leq.Model(PATH, context=2**70)),
                    ("key_type", lambda: leq.Model(PATH, key_type=8)),
                    ("key_type", lambda: leq.Model(PATH, key_type="f16\0")),
                    ("path", lambda: leq.Model(5.5)),
                    ("judge", lambda: leq.quantize(STORY, "/tmp/x.leq", judge="no"))):
                with self.assertRaises(leq.WrongTypeError) as caught:
                    call()
                self.assertIsInstance(caught.exception, TypeError)
                self.assertTrue(str(caught.exception).startswith(words), caught.exception)
            for words, call in (("text: '\\ud800' at 1 is no character", lambda: model.generate("a\ud800")),
                                ("grammar: '\\ud800' at 0", lambda: model.generate("a", grammar="\ud800")),
                                ("path 'a\\ud800'", lambda: leq.Model("a\ud800")),
                                ("sequences -1: ", lambda: leq.Model(PATH, sequences=-1))):
                with self.assertRaises(leq.Error) as caught:
                    call()
                self.assertTrue(str(caught.exception).startswith(words), caught.exception)
            unlimited = [model.generate(PROMPT, max_tokens=n, temperature=0).text for n in (None, 0, -1)]
            self.assertEqual(len(set(unlimited)), 1)
            self.assertEqual(model.embed([]).shape, (0, model.info["width"]))

    def test_names_of_files_are_the_systems(self):
        odd = os.fsdecode(os.fsencode(WORK.name) + b"/\xff.leq")
        os.link(PATH, odd)
        with leq.Model(odd) as model:
            model.generate("The dog", max_tokens=2)
            model.save_state("The dog", odd + ".leqprm")
        self.assertTrue(os.path.exists(odd + ".leqprm"))
        with self.assertRaises(leq.FileError) as caught:
            leq.Model(odd + ".none")
        self.assertIn("\\xff.leq.none", str(caught.exception))
        for call in (lambda: leq.Model(f"{PATH}\0b"), lambda: leq.inspect(f"{PATH}\0b"),
                     lambda: leq.quantize(STORY, f"{PATH}\0b"), lambda: leq.plan_memory(f"{PATH}\0")):
            self.assertRaises(ValueError, call)

    def test_a_closed_model_is_told(self):
        model = open_model()
        tokenizer = model.tokenizer
        model.close()
        model.close()
        for call in (lambda: model.generate("a"), lambda: model.stream("a"),
                     lambda: tokenizer.encode("a"), lambda: model.feed([1]), model.inspect):
            self.assertRaises(leq.UsageError, call)

    def test_a_stream_raises_what_its_reply_raises(self):
        with open_model(context=64) as model:
            self.assertRaises(leq.ContextFullError, list, model.stream("dog " * 100))

    def test_exceptions_of_callbacks_come_out(self):
        def fail(*_):
            raise KeyError("mine")
        with open_model() as model:
            self.assertRaises(KeyError, model.perplexity, "a dog " * 300, window=64, progress=fail)
        self.assertRaises(KeyError, leq.quantize, STORY, pathlib.Path(WORK.name) / "no.leq",
                          type="int8", progress=fail)
        self.assertRaises(KeyError, leq.quantize, STORY, pathlib.Path(WORK.name) / "no.leq",
                          type="int8", judge=True, say=fail)

    def test_a_forked_process_is_told(self):
        with open_model() as model:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's own, that fork() and threads do not mix
                child = os.fork()
            if child == 0:
                try:
                    model.generate("a")
                except leq.UsageError:
                    os._exit(7)
                os._exit(1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)

    def test_nothing_is_printed_and_interrupts_end_a_reply(self):
        # A shell starts what is in the background with interrupts ignored, which Python keeps.
        script = ("import leq, signal, sys\n"
                  "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                  "model = leq.Model(sys.argv[1], context=1024)\n"
                  "open(sys.argv[2], 'w').close()\n"
                  "try:\n"
                  "  while True: model.generate('Once', ignore_eos=True)\n"
                  "except KeyboardInterrupt:\n"
                  "  assert model.generate('Once', max_tokens=3, seed=1).tokens\n"
                  "  sys.exit(5)\n")
        flag = pathlib.Path(WORK.name) / "begun"
        process = subprocess.Popen([sys.executable, "-c", script, PATH, flag], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        while not flag.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err), (5, b"", b""))

    def test_from_pretrained_says_what_it_needs(self):
        try:
            import huggingface_hub  # noqa: F401
        except ImportError:
            self.assertRaises(leq.UsageError, leq.Model.from_pretrained, "org/name")


class Types(unittest.TestCase):
    def test_each_setting_of_a_reply_has_a_type(self):
        typed = set(typing.get_type_hints(leq.types.Settings))
        source = (SOURCE / "src/sampling/settings.h").read_text()
        listed = (SOURCE / "src/capi/generate.cpp").read_text().partition("kOthers = {")[2].partition("}")[0]
        accepted = set(re.findall(r'\.(?:name|config_key) = "(\w+)"', source)) | set(re.findall(r'"(\w+)"', listed))
        self.assertEqual(typed, accepted - {"max_tokens"})  # a parameter of its own
        with open_model() as model:
            model.generate(PROMPT, max_tokens=1, **dict.fromkeys(typed))
            self.assertRaises(leq.SettingError, model.generate, PROMPT, other=None)

    def test_other_settings_have_types(self):
        for hints, native, own in ((leq.types.MeasureOptions, leq._leq.MeasureSettings, set()),
                                   (leq.types.QuantizeOptions, leq._leq.QuantizeSettings,
                                    {"recipe", "method", "type", "calibration"})):
            self.assertEqual(set(typing.get_type_hints(hints)) | own,
                             {name for name in vars(native) if not name.startswith("_")})

    def test_results_have_the_members_of_their_types(self):
        def check(value, hint):
            hint = typing.get_args(hint) if typing.get_origin(hint) is typing.Union else (hint,)
            kinds = [typing.get_origin(one) or one for one in hint]
            if value is None:
                self.assertIn(type(None), kinds)
                return
            one, kind = next((one, kind) for one, kind in zip(hint, kinds) if kind is not type(None))
            if typing.is_typeddict(kind):
                members = typing.get_type_hints(kind)
                self.assertLessEqual(set(value), set(members), kind)
                self.assertLessEqual(kind.__required_keys__, set(value), kind)
                for name, member in value.items():
                    check(member, members[name])
            elif kind is list:
                for member in value:
                    check(member, typing.get_args(one)[0])
            elif kind is typing.Literal:
                self.assertIn(value, typing.get_args(one))
            elif kind is float:
                self.assertIsInstance(value, (int, float))
            elif kind is not typing.Any:
                self.assertIsInstance(value, kind)

        types, messages = leq.types, [{"role": "user", "content": "Hi"}]
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
            "additionalProperties": False}}}
        with open_model() as model:
            for request in ({"max_tokens": 3}, {"max_tokens": 3, "logprobs": True, "top_logprobs": 2},
                            {"tools": [tool], "tool_choice": "required", "max_tokens": 60}):
                check(model.create_chat_completion(messages, **request), types.ChatCompletion)
                for chunk in model.create_chat_completion(messages, stream=True, **request):
                    check(chunk, types.ChatChunk)
            for request in ({}, {"logprobs": 2, "echo": True}, {"stream_options": {"include_usage": True}}):
                check(model.create_completion(PROMPT, max_tokens=3, **request), types.Completion)
                for chunk in model.create_completion(PROMPT, max_tokens=3, stream=True, **request):
                    check(chunk, types.CompletionChunk)
            check(model.create_embedding("a dog"), types.Embeddings)


if __name__ == "__main__":
    unittest.main()
