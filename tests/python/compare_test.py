"""leq-compare: statistics against published values, charts and pages as XML and HTML, runs that are interrupted and
go on, numbers against those of the tools and of transformers, refusals in a line."""

import csv
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree
from html.parser import HTMLParser

MISSING = [name for name in ("scipy", "matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
if MISSING:
    print(f"python: NOT RUN: leq-compare needs {', '.join(MISSING)}")
    sys.exit(77)

import leq  # noqa: E402
import numpy  # noqa: E402
from leq.compare import charts, cli, measure, page, paper, statistics, text  # noqa: E402

SOURCE = pathlib.Path(os.environ["LEQ_SOURCE"])
TOOLS = pathlib.Path(os.environ["LEQ_TOOLS"])
STORY = SOURCE / "examples/storyteller"
FOLDER = tempfile.TemporaryDirectory()
WORK = pathlib.Path(FOLDER.name)


def tearDownModule():
    FOLDER.cleanup()


class Statistics(unittest.TestCase):
    def test_students_sleep_data(self):
        """Student's own example (1908): hours of sleep gained by ten patients with two drugs."""
        first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
        second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
        test = statistics.paired(first, second)
        for found, expected in ((test.mean, -1.58), (test.t, -4.0621), (test.p, 0.002833), (test.low, -2.4598858),
                                (test.high, -0.7001142), (test.effect, -4.0621 / 10 ** 0.5)):
            self.assertAlmostEqual(found, expected, delta=5e-5)
        self.assertEqual(statistics.paired(first, first).p, 1)
        self.assertEqual(statistics.paired([1, 2, 3], [0, 1, 2]).p, 0)

    def test_wilsons_interval(self):
        """Newcombe 1998, table I, method 3."""
        for right, trials, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611),
                                         (1, 29, 0.0061, 0.1718)):
            share = statistics.share_interval(right, trials)
            self.assertAlmostEqual(share.low, low, delta=5.1e-5)
            self.assertAlmostEqual(share.high, high, delta=5.1e-5)

    def test_few_windows_have_students_interval(self):
        """The critical value of the two-sided 5 % table for 7 degrees of freedom is 2.365."""
        values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
        half = 2.365 * (sum((v - 3.875) ** 2 for v in values) / 7) ** 0.5 / 8 ** 0.5
        found = statistics.mean_interval(values)
        self.assertAlmostEqual(found.value, 3.875)
        self.assertAlmostEqual(found.low, 3.875 - half, delta=0.002)
        self.assertAlmostEqual(found.high, 3.875 + half, delta=0.002)
        self.assertEqual(statistics.mean_interval([2.0]).high, 2.0)

    def test_many_windows_have_an_interval_near_the_normal_one(self):
        values = [numpy.sin(1.7 * i) + 0.01 * i for i in range(400)]
        half = 1.96 * (sum((v - sum(values) / 400) ** 2 for v in values) / 399 / 400) ** 0.5
        found = statistics.mean_interval(values)
        self.assertAlmostEqual(found.low, found.value - half, delta=0.12 * half)
        self.assertEqual(found, statistics.mean_interval(values))

    def test_a_median_is_within_its_own_interval(self):
        skewed = [1.0] * 30 + [2.0] * 40 + [50.0] * 31
        found = statistics.median_interval(skewed)
        self.assertEqual(found.value, 2.0)
        self.assertTrue(found.low <= found.value <= found.high)

    def test_a_corrected_interval_without_0_is_a_verdict(self):
        generator = numpy.random.default_rng(3)
        lists = {f"m{i}": generator.normal(0.02 * i * i, 0.1, 12).tolist() for i in range(6)}
        outcomes = statistics.all_pairs(lists)
        self.assertEqual(len(outcomes), 30)
        for (first, second), one in outcomes.items():
            self.assertEqual(one.test.low <= 0 <= one.test.high, one.verdict == "no difference shown")
            self.assertEqual(one.test.mean, -outcomes[second, first].test.mean)
            self.assertEqual(one.corrected, min(1, 15 * one.test.p))

    def test_noise(self):
        self.assertTrue(statistics.is_noisy({"tps": 51.3, "min": 42.4, "max": 59.1}))
        self.assertFalse(statistics.is_noisy({"tps": 100, "min": 98, "max": 101}))


class Axes(unittest.TestCase):
    def test_directions_of_a_skewed_cloud(self):
        """Points (5, -2, 1) + 3 cos t (0.6, 0.8, 0) + sin t (0, 0, 1)."""
        t = 2 * numpy.pi * numpy.arange(360) / 360
        rows = numpy.stack([5 + 1.8 * numpy.cos(t), -2 + 2.4 * numpy.cos(t), 1 + numpy.sin(t)], axis=1)
        mean, directions, explained, spread = paper.principal_axes(rows)
        numpy.testing.assert_allclose(mean, [5, -2, 1], atol=1e-9)
        numpy.testing.assert_allclose(directions, [[0.6, 0.8, 0], [0, 0, 1]], atol=1e-9)
        numpy.testing.assert_allclose(explained, [0.9, 0.1], atol=1e-9)
        self.assertAlmostEqual(spread, 5 ** 0.5)


class Windows(unittest.TestCase):
    def test_rows_are_joined_as_the_data_set_is(self):
        self.assertEqual(text.join_rows(" \n = A = \n \n b \n"), "\n\n = A = \n\n\n\n\n b \n")
        self.assertEqual(text.join_rows("a\nb"), "a\n\n\nb")

    def test_windows_of_protocols(self):
        self.assertEqual(text._plan("hf", 4, 4, 0, 10), [(0, 4, 1), (4, 4, 5)])
        self.assertEqual(text._plan("hf-stride", 4, 2, 0, 7), [(0, 4, 1), (2, 4, 4), (4, 3, 6)])
        self.assertEqual(text._plan("llamacpp-512", 512, 512, 1, 1030), [(0, 512, 257)])

    def test_divergence_by_hand(self):
        base, other = numpy.log([[0.5, 0.25, 0.25]]), numpy.log([[0.25, 0.5, 0.25]])
        found = text.compare_rows(base.astype(numpy.float32), other.astype(numpy.float32), [1])
        self.assertAlmostEqual(found["kl"][0], 0.25 * numpy.log(2), places=6)
        self.assertAlmostEqual(found["nll"][0], numpy.log(2), places=6)
        self.assertAlmostEqual(found["delta_p"][0], 0.25, places=6)
        self.assertEqual(found["same_top"][0], 0)

    def test_forms_of_questions(self):
        def read(line):
            path = WORK / "q.jsonl"
            path.write_text(json.dumps(line) + "\n")
            return text.read_questions(path)[0]
        one = read({"activity_label": "Cutting", "ctx_a": "[header] How to cut [title] Take it.", "ctx_b": "the Knife",
                    "endings": ["is [step] sharp.", "b", "c", "d"], "label": "2"})
        self.assertEqual((one.context, one.choices[0], one.answer), ("Cutting: How to cut. Take it. The knife", "is sharp.", 2))
        self.assertEqual(read({"goal": "g", "sol1": "a", "sol2": "b", "label": 1}).context, "Question: g\nAnswer:")
        arc = read({"question": {"stem": "s", "choices": [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}]}, "answerKey": "B"})
        self.assertEqual((arc.choices, arc.answer), (["x", "y"], 1))
        mmlu = read({"question": "q ", "choices": ["x", "y"], "answer": "B", "subject": "a_b"})
        self.assertTrue(mmlu.context.endswith("about a b.\n\nq\nA. x\nB. y\nAnswer:"))
        with self.assertRaisesRegex(leq.InputError, "q.jsonl: line 1: no form of a question"):
            read({"a": 1})
        for line in ({"context": 5, "choices": ["a", "b"], "label": 0}, {"goal": "g", "sol1": 5, "sol2": "b", "label": 1}):
            with self.assertRaisesRegex(leq.InputError, "q.jsonl: line 1: expected a text, found 5"):
                read(line)
        with self.assertRaisesRegex(leq.InputError, "q.jsonl: line 1: .*surrogates not allowed"):
            read({"context": "\ud800", "choices": ["a", "b"], "label": 0})

    def test_log_likelihoods_of_transformers(self):
        """Of AutoModelForCausalLM in float32: the tokens of a choice after its context."""
        expected = [[-43.895762, -33.587676, -47.908739, -17.279672], [-49.408355, -24.386525, -38.779942, -42.857730],
                    [-31.092917, -71.735500, -64.459167, -33.376288], [-42.866629, -58.051065, -63.409067, -24.822842],
                    [-119.904905, -97.788956, -72.577687, -118.239731], [-39.108003, -68.491825, -55.948026, -50.085829]]
        leq.quantize(STORY, WORK / "exact.leq", type="bf16")
        questions = text.read_questions(STORY / "choices.jsonl", len(expected))
        with leq.Model(WORK / "exact.leq", context=512, key_type="f32", value_type="f32", threads=1) as model:
            for question, sums in zip(questions, expected):
                for choice, value in zip(question.choices, sums):
                    tokens, scored_from = text.choice_tokens(model.tokenizer, question.context, choice, 512)
                    rows = text._log_softmax(text.scored_logits(model, tokens, scored_from))
                    found = rows[numpy.arange(len(rows)), tokens[scored_from:]].sum()
                    self.assertAlmostEqual(found, value, delta=2e-3)


class Candidates(unittest.TestCase):
    def test_parts(self):
        one = cli.parse_candidate(" smoothquant:int8+online#16@simq4 ")
        self.assertEqual((one.spec, one.method, one.type, one.act, one.windows, one.cache),
                         ("smoothquant:int8+online#16@simq4", "smoothquant", "int8", "online", 16, "simq4"))
        self.assertEqual(cli.parse_candidate("gptq+").method, "gptq+")
        plus = cli.parse_candidate("gptq+:int4-g64+row")
        self.assertEqual((plus.method, plus.type, plus.act), ("gptq+", "int4-g64", "row"))
        self.assertEqual(cli.parse_candidate("simquant:2").cache, "simq2")
        self.assertTrue(cli.parse_candidate("simquant").is_base)
        self.assertEqual([c.spec for c in cli.parse_candidates("q8,base,gptq, q8")], ["q8", "gptq"])

    def test_methods_are_those_of_quantize(self):
        with self.assertRaises(leq.Error) as raised:
            leq.quantize(STORY, WORK / "x.leq", method="no such")
        names = str(raised.exception).split("one of ")[1].split(", ")
        self.assertEqual(set(names), set(measure.METHODS))


class Check(HTMLParser):
    """Balanced elements, ids that are there once, the exact numbers of cells."""

    def __init__(self, markup):
        super().__init__()
        self.open, self.ids, self.numbers = [], set(), set()
        self.feed(markup)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        if tag not in {"meta", "br", "hr", "img", "link", "input"}:
            self.open.append(tag)
        self.handle_startendtag(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                assert value not in self.ids, f"id twice: {value}"
                self.ids.add(value)
            if name == "data-value":
                self.numbers.add(value)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"{self.getpos()}: {tag}"


class Charts(unittest.TestCase):
    def test_all_kinds_are_xml_and_say_their_names(self):
        colours = charts.Colours(["<one>", "two"])
        point = (3, 0.01, 0.005, 0.02)
        for drawing in (charts.scatter("a & b", "x", "y", {"<one>": point, "two": (5, 0.1, 0.1, 0.2)}, colours),
                        charts.lines("l", "x", "y", {"<one>": [point, (4, 1, 1, 1)]}, colours, log_y=True),
                        charts.cloud("c", "x", "y", {"base": ("base", [(1, 2)]), "<one>": ("<one>", [(1, 2), (3, 4)])}, colours),
                        charts.bars("b", "ms", {"<one>": [1, 2]}, ["p", "q"]),
                        charts.bars("s", "ms", {"<one>": 1}, colours=colours, centred=True),
                        charts.intervals("i", "x", {"<one>": (1, 0.5, 2)}, colours, 1.5),
                        charts.heat("h", "x", ["<one>"], ["c", "d"], [[0.5, None]]),
                        charts.radar("r", ["a", "b", "c"], {"<one>": [1, 0.5, 0]}, colours)):
            alone = drawing.svg("f1", alone=True) if drawing.title == "a & b" else None
            markup = alone or drawing.svg("f2")
            root = xml.etree.ElementTree.fromstring(markup)
            self.assertEqual(root.attrib["aria-label"], drawing.title)
            self.assertIn("&lt;one&gt;", markup)
            self.assertNotIn("nan", markup.lower())

    def test_empty_charts(self):
        xml.etree.ElementTree.fromstring(charts.lines("l", "x", "y", {}, charts.Colours(), log_x=True).svg("f"))

    def test_a_name_has_one_colour(self):
        names = [f"m{i}" for i in range(14)]
        colours = charts.Colours(names)
        self.assertEqual(len({colours[name] for name in ["base", *names]}), 15)
        self.assertEqual(colours["m3"], charts.Colours(names)["m3"])

    def test_short_numbers(self):
        self.assertEqual([charts.short_number(one) for one in (0.05, 1234, 23456, 4e8, 3e-7, 0)],
                         ["0.05", "1234", "23.5k", "400M", "3e-07", "0"])

    def test_the_frontier_passes_through_what_nothing_beats(self):
        points = {"a": (1, 3, 3, 3), "b": (2, 5, 5, 5), "c": (3, 1, 1, 1)}
        markup = charts.scatter("p", "x", "y", points, charts.Colours()).svg("f")
        root = xml.etree.ElementTree.fromstring(markup)
        front = next(one for one in root.iter() if one.attrib.get("id", "").endswith("frontier"))
        path = next(one for one in front.iter() if one.tag.endswith("path")).attrib["d"]
        self.assertEqual(path.count("L"), 2)  # right of a, then down to c, past b


def words(name, *more, methods="absmax:int8,absmax:int4-g128,simquant:4,smoothquant:int8,gptq"):
    return [str(STORY), "-f", str(STORY / "heldout.txt"), "--join", "none", "-o", str(WORK / name), "--window", "48",
            "--chunks", "4", "--samples", "2", "--methods", methods, "-t", "1", *map(str, more)]


def job_of(name, *more, **options):
    job = cli.job_of(words(name, *more, **options))
    job.length = 64
    job.sizes = measure.Sizes(layer_windows=2, layer_tokens=32, runs=2, prompt=32, generated=4, calibration_windows=[1, 2],
                              contexts=[32, 64], context_tokens=128, sequences=[1, 2], questions=4, fusion_runs=21)
    return job


def compare(job, stop_after=None):
    left = [stop_after]

    def progress(done, total, step):
        if left[0] is not None and done >= left[0]:
            raise KeyboardInterrupt
    said = []
    found = measure.Comparison(job, [paper.plan], said.append, progress).run()
    return found, said


def without_times(found):
    found = json.loads(json.dumps({key: value for key, value in found.items() if key not in measure.Comparison.SPEED}))
    for entry in found["file"].values():
        del entry["setup_seconds"]
    return found


class Comparison(unittest.TestCase):
    """One comparison of everything, and what follows from it."""

    @classmethod
    def setUpClass(cls):
        cls.found, cls.said = compare(job_of("report", "--choices", STORY / "choices.jsonl"))
        cls.path, cls.bytes, cls.summary = page.write(cls.found, WORK / "report")
        cls.report = json.loads((WORK / "report/report.json").read_text())

    def test_nothing_is_left_out(self):
        self.assertEqual(self.said, [])
        self.assertFalse((WORK / "report/work").exists())

    def test_what_is_known_of_the_methods(self):
        kl = {spec: entry["kl_mean"] for spec, entry in self.found["quality"].items()}
        self.assertLess(kl["base"], 1e-6)
        self.assertGreater(kl["absmax:int8"], 1e-5)
        self.assertGreater(kl["absmax:int4-g128"], 5 * kl["absmax:int8"])
        files = self.found["file"]
        self.assertEqual(files["simquant:4"]["bits_per_weight"], files["base"]["bits_per_weight"])
        self.assertEqual(files["base"]["type"], "bf16")

    def test_files_of_questions_with_one_name_are_told_apart(self):
        lines = (STORY / "choices.jsonl").read_text().splitlines(keepends=True)
        paths = [WORK / folder / "test.jsonl" for folder in ("a", "b")]
        for path, count in zip(paths, (1, 2)):
            path.parent.mkdir()
            path.write_text("".join(lines[:count]))
        found, _ = compare(job_of("names", "--parts", "none", "--choices", paths[0], "--choices", paths[1],
                                  methods="absmax:int8"))
        self.assertEqual(found["tasks"], list(map(str, paths)))
        self.assertEqual([found[f"choices {path}"]["base"]["questions"] for path in paths], [1, 2])

    def test_a_finished_run_measures_nothing_again(self):
        again, _ = compare(job_of("report", "--choices", STORY / "choices.jsonl"))
        self.assertEqual(again, self.found)
        before = (WORK / "report/report.json").read_text()
        page.write(again, WORK / "report")
        self.assertEqual((WORK / "report/report.json").read_text(), before)

    def test_an_interrupted_run_goes_on_to_equal_numbers(self):
        with self.assertRaises(KeyboardInterrupt):
            compare(job_of("interrupted", "--parts", "layers"), stop_after=7)
        kept = sorted((WORK / "interrupted/results").iterdir())
        self.assertGreaterEqual(len(kept), 5)
        times = [path.stat().st_mtime_ns for path in kept]
        found, _ = compare(job_of("interrupted", "--parts", "layers"))
        self.assertEqual([path.stat().st_mtime_ns for path in kept], times)
        for group in ("quality", "layers"):
            self.assertEqual(found[group], self.found[group])

    def test_again_repeats_setup_alone(self):
        compare(job_of("again", "--parts", "none", methods="absmax:int8"))
        job = job_of("again", "--parts", "none", "--again", "setup", methods="absmax:int8")
        kept = {path.name: path.stat().st_mtime_ns for path in (WORK / "again/results").iterdir()}
        compare(job)
        changed = [path.name for path in (WORK / "again/results").iterdir() if kept.get(path.name) != path.stat().st_mtime_ns]
        self.assertEqual(len(changed), 2)  # the files of base and absmax:int8

    def test_the_page_is_well_formed_and_needs_nothing_beside_it(self):
        markup = self.path.read_text()
        self.assertNotIn(" src=", markup)
        self.assertNotIn("http", markup)
        checked = Check(markup)
        shown = {"activations", "channels", "weight_histograms", "activation_histograms", "hidden"}
        count = 0
        for name, table in self.report.items():
            for row in table if isinstance(table, list) and name not in shown else []:
                for value in row.values():
                    if isinstance(value, (int, float)):
                        count += 1
                        self.assertIn(json.dumps(value), checked.numbers, name)
        self.assertGreater(count, 500)
        xml.etree.ElementTree.parse(WORK / "report/size_and_kl.svg")

    def test_csv_files_hold_the_numbers_of_the_json(self):
        with open(WORK / "report/head_to_head.csv") as file:
            rows = list(csv.DictReader(file))
        for row, expected in zip(rows, self.report["head_to_head"], strict=True):
            self.assertEqual(row["method"], expected["method"])
            self.assertEqual(float(row["KL, nats"]), expected["KL, nats"])

    def test_layers_are_within_the_sum_of_measured_gains(self):
        self.assertEqual(set(self.found["layers"]), set(self.found["candidates"]))
        for entry in self.found["layers"].values():
            self.assertEqual(len(entry["layers"]), 7)
            for row in entry["layers"]:
                self.assertLessEqual(row["share_error"], 1.001 * row["share_bound"] + 1e-9)

    def test_inputs_of_a_quantized_model_are_those_of_the_other_rounded(self):
        exact, rounded = (self.found["activations"][spec]["sites"] for spec in ("base", "absmax:int8"))
        self.assertEqual([site["site"] for site in exact[:4]], ["qkv", "o", "gate_up", "down"])
        for one, other in zip(exact, rounded, strict=True):
            for key in ("rms", "absmax"):
                self.assertAlmostEqual(other[key], one[key], delta=0.03 * one[key])

    def test_weights_are_those_of_the_checkpoint(self):
        parts = self.found["weights"]["base"]["parts"]
        self.assertEqual([part["part"] for part in parts][:4], ["q", "k", "v", "o"])
        self.assertTrue(all(sum(part["counts"]) > 10000 and 2 < part["kurtosis"] < 30 for part in parts))

    def test_the_bound_of_theorem_2_is_loose_by_two(self):
        for row in self.found["cache_bound"]["simquant:8"]:
            for bits in (8, 4, 2):
                self.assertTrue(0.3 < row[f"share_{bits}"] <= 0.5 + 1e-9)

    def test_the_ratio_of_fused_quantization_is_within_its_interval(self):
        one = self.found["fusion"]["smoothquant:int8"]
        self.assertTrue(one["ratio_low"] <= one["ratio"] <= one["ratio_high"])

    def test_every_table_of_the_paper_is_answered(self):
        asked = {row["paper"] for row in self.report["answers"]}
        self.assertTrue({"Table 1", "Table 2", "Table 3", "Table 4", "Table 5, Figure 3"} <= asked)
        self.assertTrue(all(row["found here"] for row in self.report["answers"]))
        self.assertEqual(len(self.report["table4"]), 4)  # base, absmax:int8, simquant:4, smoothquant:int8

    def verdicts(self, found):
        return {claim.text: claim for claim in paper.claims(page.Results(found))}

    def test_claims_are_decided_by_the_figures(self):
        found = json.loads(json.dumps(self.found))
        for entry in found["quality"].values():
            entry["window_nll"] = [1.0, 2.0, 3.0, 4.0]
        claims = self.verdicts(found)
        self.assertEqual(claims["Its improvements are significant, p < 0.01"].verdict, "does not hold here")
        bound = "The error of SimQuant is at most (max - min) / (2^b - 1)"
        self.assertEqual(claims[bound].verdict, "holds")
        found["cache_bound"]["simquant:8"][0]["share_4"] = 1.5
        self.assertEqual(self.verdicts(found)[bound].verdict, "does not hold here")

    def test_claims_keep_to_the_papers_scope(self):
        found = json.loads(json.dumps(self.found))
        found["quality"]["absmax:int8"]["ppl"] = 1e6
        growth = "On larger models perplexity grows by less than 10 %"
        small = self.verdicts(found)[growth]
        self.assertEqual(small.verdict, "not tried")
        for words in ("LLaMA-13B", "SimQuant +12.6 %", "ZeroQuant +36.1 %", "AWQ +11.1 %", "ZeroQuant +42.8 %"):
            self.assertIn(words, small.own)
        found["model"]["parameters"] = 13_000_000_000
        self.assertEqual(self.verdicts(found)[growth].verdict, "does not hold here")
        self.assertEqual(self.verdicts(found)["SimQuant is superior for long contexts"].verdict, "not tried")
        best = self.verdicts(found)["SmoothQuant has the best accuracy"].found
        self.assertIn("Compared with absmax:int8, absmax:int4-g128, simquant:4, gptq", best)

    def test_quotes_are_the_papers(self):
        path = pathlib.Path(os.environ.get("LEQ_SHARED", SOURCE.parent / "shared")) / "paper/llmeasyquant-2406.19657.txt"
        if not path.exists():
            self.skipTest(f"needs {path}")
        flat = " ".join(path.read_text().replace("’", "'").replace("p ¡ 0.01", "p < 0.01").split())
        for claim in paper.claims(page.Results(self.found)):
            if "O(" not in claim.quote and "bitwidth" not in claim.quote:  # formulas are spelled in words there
                self.assertIn(claim.quote.rstrip("."), flat)

    def test_noisy_speeds_have_no_verdict(self):
        found = json.loads(json.dumps(self.found))
        for entry in found["speed"].values():
            for test in ("prompt", "generation"):
                entry[test] |= {"min": entry[test]["tps"] * 0.99, "max": entry[test]["tps"] * 1.01}
        claim = "SmoothQuant runs 1.7 times as fast as FP16"
        self.assertNotEqual(self.verdicts(found)[claim].verdict, "not tried")
        found["speed"]["base"]["prompt"]["max"] *= 1.5
        noisy = self.verdicts(found)[claim]
        self.assertEqual(noisy.verdict, "not tried")
        self.assertIn("Other programs used the cores while base (prompt) ran", noisy.found)
        page.write(found | {"text": found["text"]}, WORK / "report")
        self.assertIn("Other programs used the cores", (WORK / "report/index.html").read_text())
        page.write(self.found, WORK / "report")

    def test_the_card_and_the_answer_name_one_nearest_method(self):
        results = page.Results(self.found)
        near = page.cards(results, [])[0][0]
        answer = next(row["found here"] for row in self.report["answers"] if row["paper"] == "Table 1")
        self.assertIn(f"Nearest to the unquantized model: {near} (", answer)


class Command(unittest.TestCase):
    def run_it(self, *given, **environment):
        run = subprocess.run([sys.executable, "-c", "import sys; from leq.compare.cli import main; sys.exit(main())", *given],
                             capture_output=True, text=True, env={**os.environ, **environment})
        return run.returncode, run.stdout, run.stderr

    def test_numbers_are_those_of_the_tools(self):
        code, out, error = self.run_it(*words("tools", "--parts", "none", "--choices", STORY / "choices.jsonl", "--questions",
                                              3, methods="gptq:int4-g128"))
        self.assertEqual(code, 0, error)
        self.assertIn("gptq:int4-g128", out)
        rows = json.loads((WORK / "tools/report.json").read_text())
        for name, flags in (("base", ["--type", "bf16"]),
                            ("gptq", ["--method", "gptq", "--type", "int4-g128", "--samples", "2", "--no-gate"])):
            subprocess.run([TOOLS / "leq-quantize", STORY, "-o", WORK / f"{name}.leq", *flags], check=True, capture_output=True)

        def perplexity(name, *flags):
            run = subprocess.run([TOOLS / "leq-perplexity", "-m", WORK / f"{name}.leq", "-ctk", "f32", "-ctv", "f32", "-o", "json",
                                  *map(str, flags)], check=True, capture_output=True, text=True)
            return json.loads(run.stdout)
        windows = ["-f", STORY / "heldout.txt", "--join", "none", "--window", 48, "--chunks", 4, "--kl-divergence-base",
                   WORK / "base.kl"]
        perplexity("base", *windows)
        expected, row = perplexity("gptq", *windows, "--kl-divergence"), rows["head_to_head"][1]
        self.assertEqual(row["file, MB"], (WORK / "gptq.leq").stat().st_size / 1e6)
        self.assertEqual(row["bits/weight"], expected["bits_per_weight"])
        for name, value in (("perplexity", expected["ppl"]), ("+-", expected["stderr"]),
                            ("same top, %", 100 * expected["same_top1"])):
            self.assertAlmostEqual(row[name], value, delta=1e-9 * abs(value))
        self.assertAlmostEqual(row["KL, nats"], expected["kl_mean"], delta=2e-4 * expected["kl_mean"])  # a base of 16 bits
        for key, value in (("acc", 1), ("acc_low", 0.4385029682), ("acc_high", 1), ("acc_norm", 1), ("acc_norm_low", 0.4385029682)):
            self.assertAlmostEqual(rows["choices"][1][key], value, places=9)  # 3 of 3, Wilson's interval

    def test_speeds_are_left_out_without_leq_bench(self):
        code, _, error = self.run_it(*words("slow", "--parts", "speed", methods="absmax:int8"), LEQ_TOOLS="/no", PATH="/no")
        self.assertEqual(code, 0, error)
        self.assertIn("absmax:int8, speed: left out: speeds need the command-line tool leq-bench", error)

    def test_a_method_that_cannot_is_left_out_and_told(self):
        short = WORK / "calibration.txt"
        short.write_text("Too short.")
        code, _, error = self.run_it(*words("left", "--parts", "none", "--calibration", short, methods="gptq,absmax:int8"))
        self.assertEqual(code, 0, error)
        self.assertIn("gptq, file: left out: ", error)
        found = json.loads((WORK / "left/report.json").read_text())
        self.assertEqual([row["method"] for row in found["head_to_head"]], ["base", "absmax:int8"])
        self.assertIn("gptq", (WORK / "left/index.html").read_text())

    def test_what_is_wrong_is_told_in_a_line(self):
        tiny, one, questions = WORK / "tiny.txt", WORK / "one.txt", WORK / "bad.jsonl"
        tiny.write_text("Once upon a time.")
        one.write_text("Once upon a time. " * 12)
        questions.write_text('{"a": 1}\n')
        (WORK / "bytes.txt").write_bytes(b"ab\xff")
        other = WORK / "falcon"
        other.mkdir(exist_ok=True)
        (other / "config.json").write_text('{"architectures": ["FalconForCausalLM"], "model_type": "falcon"}')
        (other / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        for flags, part in ((["--methods", "smothquant"], "--methods: unknown method smothquant; use base, simquant, absmax"),
                            (["--methods", "gptq:f32"], "gptq:f32: type f32 has no codes to choose"),
                            (["--methods", "gptq:int5"], "int5"), (["--methods", "gptq+often:int4"], "unknown method gptq+often"),
                            (["--methods", "gptq:int4-g128+often"], "unknown inputs often"),
                            (["--methods", "gptq#none"], "calibration windows"), (["--methods", "simquant:3"], "8, 4 and 2 bits"),
                            (["--methods", "q8:int8"], "a type of its own"), (["--methods", " , "], "expected a method"),
                            (["--parts", "heads"], "--parts: unknown part heads"),
                            (["--again", "quality"], "--again: unknown part quality"), (["--window", "9999"], "--window 9999"),
                            (["--chunks", "x"], "--chunks: expected a whole number"), (["--no-such"], "--no-such"),
                            (["-f", tiny], "tiny.txt has"), (["-f", one], "one window is too little"),
                            (["-f", WORK / "bytes.txt"], "bytes.txt: invalid UTF-8 at offset 2"),
                            (["-f", "/no/such"], "/no/such: No such file"),
                            (["--choices", questions], "bad.jsonl: line 1: no form of a question")):
            code, out, error = self.run_it(*words("refused"), *map(str, flags))
            self.assertEqual((code, out, error.count("\n")), (1, "", 1), error)
            self.assertTrue(error.startswith("leq-compare: error: "), error)
            self.assertIn(part, error)
            self.assertFalse((WORK / "refused").exists(), error)
        code, _, error = self.run_it(str(other), *words("refused")[1:])
        self.assertEqual((code, error.count("\n")), (1, 1), error)
        self.assertIn("falcon", error)
        code, _, error = self.run_it()
        self.assertIn("missing option -o", error)

    def test_one_folder_is_written_by_one(self):
        compare(job_of("locked", "--parts", "none", methods="absmax:int8"))
        bench = measure.Bench(job_of("locked", methods="absmax:int8"))
        code, _, error = self.run_it(*words("locked", methods="absmax:int8"))
        self.assertIn("another leq-compare writes there", error)
        bench.unlock()

    def test_files_of_others_in_its_folder_stay(self):
        names = ["notes/a.leq", "thesis.txt"]
        folder = WORK / "mine" / "work"
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
        compare(job_of("mine", "--parts", "none", methods="absmax:int8"))
        left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        self.assertEqual(left, names)

    def test_variables(self):
        given = words("refused")
        del given[3:5]  # --join
        for name, value, part in (("QUESTIONS", "y", "--questions: expected a whole number"),
                                  ("JOIN", "no", "LEQ_ARG_JOIN: expected hf | none, found 'no'"),
                                  ("PROTOCOL", "hg", "LEQ_ARG_PROTOCOL: expected hf | hf-stride | llamacpp-512, found 'hg'"),
                                  ("QUICK", "maybe", "LEQ_ARG_QUICK: expected 1 | 0 (")):
            code, _, error = self.run_it(*given, **{"LEQ_ARG_" + name: value})
            self.assertEqual((code, error.count("\n")), (1, 1), error)
            self.assertIn(part, error)
        with unittest.mock.patch.dict(os.environ, LEQ_ARG_CHOICES="set.jsonl"):
            for more, choices in ((), ["set.jsonl"]), (("--choices", "a", "--choices=b"), ["a", "b"]):
                self.assertEqual([str(one) for one in cli.job_of(given + list(more)).choices], choices)


class Hybrid(unittest.TestCase):
    def test_is_measured_layer_by_layer(self):
        model = pathlib.Path(os.environ.get("LEQ_SHARED", SOURCE.parent / "shared")) / "models/qwen35-tiny"
        if not model.exists():
            self.skipTest(f"needs {model}")
        job = job_of("hybrid", "--parts", "layers,inside", methods="absmax:int8")
        job.checkpoint = model
        found, said = compare(job)
        self.assertEqual(said, [])
        layers = found["layers"]["absmax:int8"]["layers"]
        self.assertEqual(len(layers), found["model"]["layers"] + 1)
        self.assertTrue(all(row["kl_alone"] > 0 for row in layers[1:]))
        self.assertGreater(found["model"]["recurrent_layers"], 0)
        self.assertEqual(paper.claims(page.Results(found))[-1].verdict, "holds")


if __name__ == "__main__":
    unittest.main(verbosity=2)
