"""Tables of a comparison, and what is written of it: index.html, report.json, CSV files."""

import csv
import io
import json
from dataclasses import dataclass, field, replace

import jinja2

from . import charts
from .measure import write_whole
from .statistics import NOISY, all_pairs, is_noisy, mean_interval

PARTS = ("load", "quant", "gemm", "attention", "comm", "sync", "sample", "delta")
NEAR = 0.02  # nats


def significant(value, digits=3):
    """A number with so many significant digits: 0.000512, 12.3, 1,234, 5.1e-07."""
    if value == 0 or not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"
    if abs(value) >= 10 ** digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def shown(value, decimals=None):
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return significant(value, 4) if decimals is None or isinstance(value, int) else f"{value:,.{decimals}f}"


@dataclass
class Table:
    """Rows of {column: value}; numbers are shown with `decimals`, or with four significant digits."""

    id: str
    title: str
    rows: list
    decimals: dict = field(default_factory=dict)
    note: str = ""

    @property
    def columns(self):
        return list(dict.fromkeys(column for row in self.rows for column in row))

    @property
    def numeric(self):
        """The columns without words."""
        return {column for column in self.columns if not any(isinstance(row.get(column), str) for row in self.rows)}

    def cells(self, row):
        """(text, exact number or None) of each column."""
        for column in self.columns:
            value = row.get(column)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            yield shown(value, self.decimals.get(column)), json.dumps(value) if number else None

    def csv(self):
        out = io.StringIO()
        writer = csv.DictWriter(out, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()

    def text(self):
        """Columns of text for a terminal."""
        rows = [self.columns, *([cell for cell, _ in self.cells(row)] for row in self.rows)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.columns))]
        return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                                   for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows) + "\n"


@dataclass
class Figure:
    """A drawing of charts.py with a caption; `scroll`: too wide for a page, keeps its size."""

    drawing: object
    caption: str = ""


class Results:
    """The results of a comparison, with what tables and charts ask of them."""

    def __init__(self, found):
        self.found = found
        self.specs = list(found["candidates"])
        self.all = ["base", *self.specs]

    def __getitem__(self, group):
        return self.found.get(group, {})

    def __contains__(self, group):
        return group in self.found

    def entries(self, group):
        """(spec, entry) of a group: the compared ones in their order, then others."""
        entries = self[group]
        return [(spec, entries[spec]) for spec in [*(s for s in self.all if s in entries),
                                                   *(s for s in entries if s not in self.all)]]

    def number(self, group, spec, *keys):
        entry = self[group].get(spec)
        for key in keys:
            entry = entry.get(key) if entry is not None else None
        return entry

    def kl(self, spec, group="quality"):
        """The mean KL divergence with its interval, which ends at 0 as a divergence does."""
        found = mean_interval(self[group][spec]["window_kl"])
        return replace(found, low=max(0.0, found.low))

    def pairs(self, key):
        return all_pairs({spec: self["quality"][spec][key] for spec in self.specs})

    def keeps_weights(self, spec):
        """Whether the method quantizes the cache alone."""
        return self["file"][spec]["bits_per_weight"] >= 0.99 * self["file"]["base"]["bits_per_weight"]

    def noisy_speeds(self):
        """Words of the speeds whose runs differ too much for a verdict."""
        return [f"{spec} ({test}, {significant(entry[test]['min'])} to {significant(entry[test]['max'])} tokens/s)"
                for spec, entry in self.entries("speed") for test in ("prompt", "generation") if is_noisy(entry[test])]

    def nearest(self, specs):
        return min(specs, key=lambda spec: self.kl(spec).value, default=None)


# ---- Tables ----

def head_to_head(results):
    rows = []
    for spec in results.all:
        kl, quality, file = results.kl(spec), results["quality"][spec], results["file"][spec]
        memory = results.number("memory", spec, "memory_bytes")
        rows.append({"method": spec, "type": file["type"], "bits/weight": file["bits_per_weight"],
                     "perplexity": quality["ppl"], "+-": quality["stderr"], "KL, nats": quality["kl_mean"],
                     "KL low": kl.low, "KL high": kl.high, "same top, %": 100 * quality["same_top1"],
                     "prompt, t/s": results.number("speed", spec, "prompt", "tps"),
                     "generation, t/s": results.number("speed", spec, "generation", "tps"),
                     "file, MB": file["file_bytes"] / 1e6, "memory, MB": memory and memory / 1e6,
                     "setup, s": file["setup_seconds"], "calibration tokens": file["calibration_tokens"],
                     "source": "measured"})
    return Table("head_to_head", "Head to head", rows,
                 {"bits/weight": 2, "perplexity": 3, "+-": 3, "same top, %": 2, "prompt, t/s": 1, "generation, t/s": 1,
                  "file, MB": 2, "memory, MB": 2, "setup, s": 1})


def pairs_table(results):
    rows = []
    for measure, key in (("KL divergence", "window_kl"), ("log-likelihood", "window_nll")):
        outcomes = results.pairs(key)
        for i, first in enumerate(results.specs):
            for second in results.specs[i + 1:]:
                outcome = outcomes[first, second]
                rows.append({"measure": measure, "first": first, "second": second,
                             "difference, nats": outcome.test.mean, "low (all pairs at 95 %)": outcome.test.low,
                             "high (all pairs at 95 %)": outcome.test.high, "t": outcome.test.t, "p": outcome.test.p,
                             "p corrected": outcome.corrected, "effect d": outcome.test.effect,
                             "windows": outcome.test.pairs, "first is": outcome.verdict})
    return Table("pairs", "Paired tests over windows, all pairs", rows, {"t": 2, "effect d": 2})


def choices_table(results):
    rows = [{"task": task, "method": spec, **entry} for task in results["tasks"]
            for spec, entry in results.entries("choices " + task)]
    return Table("choices", "Multiple choice by log-likelihood", rows)


def parts_table(results):
    rows = []
    for test in ("generation", "prompt"):
        for spec, entry in results.entries("speed"):
            speed, parts = entry[test], entry[test + "_parts"]
            rows.append({"method": spec, "test": speed["test"], **{part: parts.get(part, 0.0) for part in PARTS},
                         "step": parts["step_ms"], "slowest, t/s": speed["min"], "fastest, t/s": speed["max"],
                         "runs agree": "no" if is_noisy(speed) else "yes"})
    return Table("parts", "Latency by part, ms (the paper's Table 5)", rows, {"slowest, t/s": 1, "fastest, t/s": 1})


def not_measured_table(results):
    return Table("not_measured", "Left out", results["not_measured"] or [])


def matrix(results):
    """Rows (name, signs) of who is nearer to the unquantized model than whom."""
    outcomes = results.pairs("window_kl")
    signs = {"better": "+", "worse": "−", "no difference shown": "·"}
    return [(spec, [signs[outcomes[spec, other].verdict] if spec != other else "" for other in results.specs])
            for spec in results.specs]


# ---- Figures ----

def pareto(results, colours, width=520, height=400):
    points = {}
    for spec in results.specs:
        if not results.keeps_weights(spec):
            kl = results.kl(spec)
            points[spec] = (results["file"][spec]["file_bytes"] / 1e6, kl.value, max(kl.low, kl.value / 50), kl.high)
    drawing = charts.scatter("Size of the file against KL divergence", "file, MB (smaller is better)",
                             "KL divergence from the unquantized model, nats", points, colours, width, height)
    return Figure(drawing, "Bars: 95 % intervals over windows. The staircase joins the methods that no other beats in both "
                  "size and KL. Methods that quantize the cache alone change no file and are not in it.")


def latency(results):
    figures = []
    for test, unit in (("generation", "ms for a token"), ("prompt", "ms for the prompt")):
        rows = {spec: [entry[test + "_parts"].get(part, 0) for part in PARTS] for spec, entry in results.entries("speed")}
        if rows:
            figures.append(Figure(
                charts.bars(f"Latency by part, {test}", unit, rows, PARTS),
                "Quantization of inputs is part of the norm, attention or SwiGLU that makes them. Weights are read within "
                "the products: load is the embedding's rows. Communication is that between ranks, and there is one."))
    return figures


def choices(results, colours):
    figures = []
    for task in results["tasks"]:
        entries = results.entries("choices " + task)
        for key in ("acc", "acc_norm") if entries else ():
            rows = {spec: (entry[key], entry[key + "_low"], entry[key + "_high"]) for spec, entry in entries}
            figures.append(Figure(
                charts.intervals(f"{task}, {key}", "share of right answers", rows, colours, rows.get("base", [None])[0]),
                "Wilson intervals, 95 %. The dashed line is the unquantized model."))
    return figures


# ---- The page ----

def cards(results, claims):
    """(name, words) of the best method, the smallest near one, and the claims."""
    found = []
    near = results.nearest(results.specs)
    alone = ", which quantizes the cache alone" if results.keeps_weights(near) else ""
    found.append((near, f"nearest to the unquantized model{alone}: KL {significant(results.kl(near).value)} nats"))
    small = [spec for spec in results.specs if not results.keeps_weights(spec) and results.kl(spec).value < NEAR]
    if small:
        spec = min(small, key=lambda one: results["file"][one]["file_bytes"])
        found.append((spec, f"smallest file below KL {NEAR}: {results['file'][spec]['file_bytes'] / 1e6:.2f} MB"))
    tried = [claim for claim in claims if claim.verdict != "not tried"]
    refuted = sum(claim.verdict.startswith("does not hold") for claim in tried)
    found.append((f"{refuted} of {len(tried)}", "claims of the paper that were tried here do not hold on this model, text "
                  "and machine"))
    return found


def write(found, folder):
    """Writes the report; returns (path of the page, its bytes, a summary for a terminal)."""
    from . import paper
    results = Results(found)
    colours = charts.Colours(results.specs)
    claims = paper.claims(results)
    made = [head_to_head(results), *paper.own_tables(results), pairs_table(results), choices_table(results),
            *paper.inside_tables(results), parts_table(results), paper.claims_table(claims), paper.answers_table(results),
            not_measured_table(results)]
    tables = {table.id: table for table in [*made, *paper.reported_tables()] if table.rows}
    figures = paper.figures(results, colours)
    figures |= {"overview": [pareto(results, colours), *figures.pop("radar")], "choices": choices(results, colours),
                "latency": latency(results)}
    count = 0
    for group in figures.values():
        for figure in group:
            count += 1
            figure.svg = figure.drawing.svg(f"f{count}")
    environment = jinja2.Environment(loader=jinja2.PackageLoader("leq.compare", "."), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["significant"] = significant
    content = environment.get_template("page.html").render(
        results=results, tables=tables, figures=figures, claims=claims, cards=cards(results, claims),
        matrix=matrix(results), noisy=results.noisy_speeds(), noise_limit=round(100 * NOISY))
    facts = {key: found[key] for key in ("model", "machine", "text", "calibration_text", "quick", "version")}
    write_whole(folder / "report.json",
                json.dumps(facts | {name: table.rows for name, table in tables.items()}, indent=1) + "\n")
    for table in tables.values():
        write_whole(folder / f"{table.id}.csv", table.csv())
    write_whole(folder / "size_and_kl.svg", pareto(results, colours, 720, 420).drawing.svg("f", alone=True))
    write_whole(folder / "index.html", content)
    lines = [f"{claim.verdict}: {claim.text} ({claim.place})\n    {claim.found}" for claim in claims
             if claim.verdict != "not tried"]
    return folder / "index.html", len(content.encode()), tables["head_to_head"].text() + "\n" + "\n".join(lines)
