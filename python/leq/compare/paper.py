"""What of a comparison is about the LLMEasyQuant paper (arXiv 2406.19657): measurements inside a model and curves,
their figures, the paper's own numbers, its claims with what is found here, and its tables asked again."""

import os
from dataclasses import dataclass, replace

import numpy

from . import charts, text
from .measure import BASE, Candidate, measure_file, measure_quality, speed_of
from .page import Figure, Table, significant
from .statistics import SIGNIFICANCE, is_noisy, median_interval, paired

_BASE = Candidate(BASE, BASE)
_SMOOTH = Candidate("smoothquant:int8", "smoothquant", "int8")
_BINS = 64  # of histograms over [-4, 4]
_BANDS = 64  # stretches of neighbouring channels
_OUTLIER = 6  # times the median channel; LLM.int8 uses an absolute 6 on normed inputs
_FIRST = 1  # hidden states from this position on: the first is often massive (Sun et al. 2024)


def _simquant(bits):
    return Candidate(f"simquant:{bits}", BASE, cache=f"simq{bits}")


# ---- Measurements ----

def _window(bench):
    first, count, _ = bench.windows.short(bench.job.sizes.layer_tokens, 1).windows[0]
    return bench.windows.tokens[first:first + count]


def _states(model, layers, hidden):
    """The hidden states [T, W] before the first layer and after each."""
    states = [hidden]
    for layer in range(layers):
        states.append(model.run_layer(layer, states[-1]))
    return states


def _square(x):
    return float(numpy.square(x, dtype=numpy.float64).sum())


def measure_layers(bench, candidate):
    """Errors by layer. H are the hidden states of the unquantized model, H' those of the quantized one, f a layer:
    local |f'(H) - f(H)| / |H|, gain |f(H') - f(H)| / |H' - H|, error |H' - H| / |H|; as shares of the last |H|:
    share_error |H' - H|, share_bound B = e + gain B, share_linear (l + 2) max e, share_worst max e times the sum of
    C^i, C the largest gain; kl_alone: KL divergence with only this layer quantized, nats."""
    windows = bench.windows.short(bench.job.sizes.layer_tokens, bench.job.sizes.layer_windows)
    layers = bench.layers
    sums = numpy.zeros((7, layers + 1))  # signal, error, entering, local, passed, H . H', |H'|^2
    alone = [[] for _ in range(layers)]
    with bench.open(_BASE, windows.window) as base, bench.open(candidate, windows.window) as model:
        for first, count, scored_from in windows.windows:
            tokens = windows.tokens[first:first + count]
            exact = _states(base, layers, base.embed_tokens(tokens))
            other = model.embed_tokens(tokens)
            sums[3, 0] += _square(other - exact[0])
            logits = base.run_head(exact[-1])[:-1]
            for depth in range(layers + 1):
                if depth:
                    layer = depth - 1
                    own = model.run_layer(layer, exact[layer])  # f'(H)
                    sums[2, depth] += _square(other - exact[layer])
                    sums[3, depth] += _square(own - exact[depth])
                    sums[4, depth] += _square(base.run_layer(layer, other) - exact[depth])
                    other = model.run_layer(layer, other)
                    for later in range(depth, layers):
                        own = base.run_layer(later, own)
                    alone[layer].append(_kl(logits, base.run_head(own)[:-1], tokens[1:]))
                sums[0, depth] += _square(exact[depth])
                sums[1, depth] += _square(other - exact[depth])
                sums[5, depth] += float(numpy.multiply(exact[depth], other, dtype=numpy.float64).sum())
                sums[6, depth] += _square(other)
    return {"layers": _layer_rows(sums, alone), "windows": len(windows.windows), "tokens": windows.window}


def _kl(base, logits, targets):
    return float(text.compare_rows(base, logits, targets)["kl"].mean())


def _layer_rows(sums, alone):
    signal, error, entering, local, passed = numpy.sqrt(sums[:5])
    gains = numpy.divide(passed, entering, out=numpy.zeros_like(passed), where=entering > 0)
    rows, bound, powers = [], 0.0, 0.0
    for i, norm in enumerate(signal):
        bound, powers = local[i] + gains[i] * bound, 1 + gains.max() * powers
        row = {"layer": i - 1, "local": local[i] / norm, "gain": gains[i], "error": error[i] / norm,
               "share_error": error[i] / signal[-1], "share_bound": bound / signal[-1],
               "share_linear": local.max() * (i + 1) / signal[-1], "share_worst": local.max() * powers / signal[-1],
               "sqnr_db": 20 * numpy.log10(norm / error[i]) if error[i] > 0 else None,
               "cosine": sums[5, i] / numpy.sqrt(sums[0, i] * sums[6, i])}
        if i:
            kl = alone[i - 1]
            row |= {"kl_alone": numpy.mean(kl), "kl_alone_stderr": numpy.std(kl, ddof=1) / len(kl) ** 0.5
                    if len(kl) > 1 else 0.0}
        rows.append({key: value if value is None else int(value) if key == "layer" else float(value)
                     for key, value in row.items()})
    return rows


def _moments(values):
    values = values.astype(numpy.float64).ravel()
    deviation = max(float(values.std()), 1e-15)
    scaled = (values - values.mean()) / deviation
    return deviation, float((scaled ** 3).mean()), float((scaled ** 4).mean())


def _histogram(values, unit):
    places = numpy.clip((values.ravel() / unit + 4) / 8 * _BINS, 0, _BINS - 1).astype(int)
    return numpy.bincount(places, minlength=_BINS).tolist()


def measure_activations(bench, candidate):
    """The inputs of each site as its weights are multiplied with them: after folds and rounding."""
    sites, hidden = [], None
    with bench.open(candidate, len(_window(bench))) as model:
        hidden = model.embed_tokens(_window(bench))
        for layer in range(bench.layers):
            hidden, inputs = model.run_layer(layer, hidden, inputs=True)
            seen = {}
            for site, rows in inputs:  # experts of one site come one by one
                seen[site] = numpy.concatenate([seen[site], rows]) if site in seen else rows
            for site, rows in seen.items():
                channels = numpy.abs(rows).max(axis=0)
                middle = float(numpy.median(channels)) or 1.0
                rms = max((_square(rows) / rows.size) ** 0.5, 1e-30)
                bands = numpy.array_split(channels, min(len(channels), _BANDS))
                sites.append({"layer": layer, "site": site, "absmax": float(channels.max()), "rms": rms,
                              "kurtosis": _moments(rows)[2], "outliers": int((channels > _OUTLIER * middle).sum()),
                              "width": len(channels), "largest_ratio": float(channels.max()) / middle,
                              "channels": [float(band.max()) / middle for band in bands],
                              "counts": _histogram(rows, rms)})
    return {"sites": sites, "tokens": len(_window(bench))}


def _matrices(info, layer):
    """The names of a layer's matrices."""
    prefix = f"layers.{layer}."
    return {one["name"].removeprefix(prefix): one for one in info["tensors"]
            if one["name"].startswith(prefix) and len(one["shape"]) == 2 and min(one["shape"]) > 1}


def measure_weights(bench, candidate):
    """The matrices of the middle layer as stored, folds included."""
    layer, parts = bench.layers // 2, []
    with bench.open(candidate) as model:
        for part, tensor in _matrices(model.inspect(), layer).items():
            values = numpy.empty(tensor["shape"], dtype=numpy.float32)
            model._opened().tensor_floats(tensor["name"], values)
            deviation, skewness, kurtosis = _moments(values)
            parts.append({"part": part, "counts": _histogram(values, deviation), "kurtosis": kurtosis,
                          "skewness": skewness, "deviation": deviation,
                          "largest": float(numpy.abs(values).max()) / deviation})
    return {"layer": layer, "parts": parts}


def measure_bits(bench, candidate):
    with bench.open(candidate) as model:
        info = model.inspect()
    units = []
    for layer in range(bench.layers):
        for part, tensor in _matrices(info, layer).items():
            digits = "".join(c for c in tensor["scheme"].split("-")[0] if c.isdigit())
            if digits:
                units.append({"layer": layer, "kind": part, "name": tensor["name"], "bits": int(digits)})
    return {"units": units}


def principal_axes(rows):
    """(mean [W], two directions [2, W], their shares of the variance, spread) of rows [T, W]."""
    mean = rows.mean(axis=0)
    _, singular, directions = numpy.linalg.svd(rows - mean, full_matrices=False)
    variances = singular ** 2
    largest = numpy.take_along_axis(directions, numpy.abs(directions).argmax(axis=1)[:, None], axis=1)
    return (mean, (directions * numpy.sign(largest))[:2], (variances / max(variances.sum(), 1e-300))[:2],
            float(numpy.sqrt(variances.sum() / len(rows))))


def measure_hidden(bench, candidate):
    """The last hidden states on the two main axes of the unquantized model's."""
    def states_of(which):
        with bench.open(which, len(_window(bench))) as model:
            states = _states(model, bench.layers, model.embed_tokens(_window(bench)))[-1]
        return states[_FIRST:].astype(numpy.float64)
    exact, states = states_of(_BASE), states_of(candidate)
    mean, directions, explained, spread = principal_axes(exact)
    moved = numpy.linalg.norm(states - exact, axis=1).mean()
    return {"points": ((states - mean) @ directions.T).tolist(), "explained": explained.tolist(),
            "shift": float(moved / spread) if spread else 0.0}


def measure_cache_bound(bench, _):
    """Theorem 2: the largest rounding error of channels, as a share of (max - min) / (2^bits - 1)."""
    with bench.open(_BASE, len(_window(bench))) as model:
        states = _states(model, bench.layers, model.embed_tokens(_window(bench)))
    rows = []
    for layer, x in enumerate(states[1:]):
        x, row = x.astype(numpy.float64), {"layer": layer}
        low, span = x.min(axis=0), numpy.ptp(x, axis=0)
        for bits in (8, 4, 2):
            step = span[span > 0] / (2 ** bits - 1)
            scaled = (x - low)[:, span > 0] / step
            row[f"share_{bits}"] = float(numpy.abs(numpy.rint(scaled) - scaled).max(initial=0))
        rows.append(row)
    return rows


def measure_contexts(bench, candidate):
    longest = min(bench.info["config"]["context"], len(bench.windows.tokens))
    rows = []
    for context in bench.job.sizes.contexts:
        if context <= longest:
            windows = bench.windows.short(context, max(1, bench.job.sizes.context_tokens // context))
            found = bench.quality(candidate, windows)
            rows.append({"context": context} | {key: found[key] for key in
                                                ("windows", "ppl", "stderr", "kl_mean", "kl_mean_stderr")})
    return rows


def measure_batches(bench, candidate):
    sequences = ",".join(map(str, bench.job.sizes.sequences))
    _, _, *flags = bench.test_flags()
    return [{"sequences": row["sequences"], **speed_of(row)}
            for row in bench.bench(candidate, "-p", 0, *flags, "-npl", sequences)]


def measure_ranks(bench, candidate):
    most = min(bench.job.threads or len(os.sched_getaffinity(0)), bench.info["config"]["kv_heads"])
    ranks = [2 ** i for i in range(most.bit_length())] if most else [1]
    rows = bench.bench(candidate, *bench.test_flags(), "--tp", ",".join(map(str, ranks)))
    return [{"ranks": count, "prompt": speed_of(prompt), "generation": speed_of(generation)}
            for count, prompt, generation in zip(ranks, rows[::2], rows[1::2])]


def measure_fusion(bench, candidate):
    """A norm that writes codes, against a norm and a pass after it: the median of the ratios, with its interval."""
    runs = bench.bench(candidate, "--fusion", "-r", bench.job.sizes.fusion_runs)
    ratio = median_interval([run["fused_ms"] / run["apart_ms"] for run in runs])
    return {"rows": runs[0]["rows"], "columns": runs[0]["columns"],
            "fused_ms": float(numpy.median([run["fused_ms"] for run in runs])),
            "apart_ms": float(numpy.median([run["apart_ms"] for run in runs])),
            "ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}


def plan(comparison, everything):
    """Adds this module's measurements to a Comparison."""
    job, sizes, add = comparison.job, comparison.job.sizes, comparison.add
    if "layers" in job.parts:
        for candidate in job.candidates:
            add("layers", candidate, measure_layers, [sizes.layer_windows, sizes.layer_tokens])
    if "inside" in job.parts:
        for candidate in everything:
            add("activations", candidate, measure_activations, [sizes.layer_tokens])
            add("weights", candidate, measure_weights)
            add("hidden", candidate, measure_hidden, [sizes.layer_tokens, _FIRST])
            if candidate.searches:
                add("bits", candidate, measure_bits)
    if "curves" not in job.parts:
        return
    if "speed" in job.parts:
        flags = [*map(str, comparison.bench.test_flags()), job.threads]
        for candidate in (_BASE, _SMOOTH, Candidate("gptq", "gptq")):
            add("batches", candidate, measure_batches, [sizes.sequences, *flags])
        add("ranks", _SMOOTH, measure_ranks, flags)
        add("fusion", _SMOOTH, measure_fusion, [sizes.fusion_runs, job.threads])
    for candidate in (_SMOOTH, Candidate("gptq", "gptq")):
        for windows in sizes.calibration_windows:
            one = replace(candidate, spec=f"{candidate.spec}#{windows}", windows=windows)
            add("file", one, measure_file)
            add("calibration", one, measure_quality)
    for act in ("row", "g128", "tensor", "online"):
        add("inputs", replace(_SMOOTH, spec=f"smoothquant:int8+{act}", act=act), measure_quality)
    for candidate in (_BASE, _simquant(8), _simquant(4), _simquant(2), _SMOOTH, Candidate("awq", "awq"),
                      Candidate("gptq", "gptq")):
        add("contexts", candidate, measure_contexts, [sizes.contexts, sizes.context_tokens])
    add("cache_bound", _simquant(8), measure_cache_bound, sizes.layer_tokens)


# ---- Tables of these measurements ----

def _table(id, title, results, group, key, columns, decimals=None):
    """A table of a group whose entries have a list of rows at `key` (None: are the list)."""
    rows = [{"method": spec, **{name: row.get(part) for part, name in columns.items()}}
            for spec, entry in results.entries(group) for row in (entry if key is None else entry[key])]
    return Table(id, title, rows, decimals or {})


def _histogram_rows(results, group, key, name):
    return [{"who": spec, "part": name(one), "at": -4 + 8 * (i + 0.5) / _BINS, "count": count}
            for spec, entry in results.entries(group) for one in entry[key] for i, count in enumerate(one["counts"])]


def _quality(entry):
    return {"perplexity": entry["ppl"], "KL, nats": entry["kl_mean"], "KL error": entry["kl_mean_stderr"]}


def inside_tables(results):
    calibration = [{"method": spec, "tokens": results["file"][spec]["calibration_tokens"],
                    "setup, s": results["file"][spec]["setup_seconds"], **_quality(entry)}
                   for spec, entry in results.entries("calibration")]
    channels = [{"method": spec, "layer": site["layer"], "site": site["site"], "stretch": i, "ratio": ratio}
                for spec, entry in results.entries("activations") for site in entry["sites"]
                for i, ratio in enumerate(site["channels"])]
    ranks = [{"method": spec, "ranks": row["ranks"], "prompt, t/s": row["prompt"]["tps"],
              "generation, t/s": row["generation"]["tps"]} for spec, rows in results.entries("ranks") for row in rows]
    return [
        _table("layers", "Errors by layer", results, "layers", "layers",
               {"layer": "after layer", "local": "own error", "gain": "gain", "error": "error",
                "share_error": "error / last", "share_bound": "bound / last", "share_linear": "L e / last",
                "share_worst": "C^L / last", "sqnr_db": "SQNR, dB", "cosine": "cosine", "kl_alone": "KL alone, nats",
                "kl_alone_stderr": "KL alone error"}, {"SQNR, dB": 1, "cosine": 6}),
        _table("bits", "Bits chosen by a search", results, "bits", "units",
               {"name": "unit", "layer": "layer", "kind": "kind", "bits": "bits"}),
        _table("weights", "Weights of the middle layer, as stored", results, "weights", "parts",
               {"part": "part", "deviation": "deviation", "largest": "largest, deviations", "kurtosis": "kurtosis",
                "skewness": "skewness"}),
        Table("weight_histograms", "Histograms of weights, in deviations",
              _histogram_rows(results, "weights", "parts", lambda part: part["part"])),
        _table("activations", "Inputs of linears, as they are multiplied", results, "activations", "sites",
               {"layer": "layer", "site": "site", "width": "channels", "absmax": "largest", "rms": "RMS",
                "kurtosis": "kurtosis", "outliers": "outlier channels", "largest_ratio": "largest channel / median"}),
        Table("channels", "Largest input of each stretch of channels / median", channels),
        Table("activation_histograms", "Histograms of inputs, in units of their RMS",
              _histogram_rows(results, "activations", "sites", lambda site: f"layers.{site['layer']}.{site['site']}")),
        Table("hidden", "Hidden states on the two main axes",
              [{"method": spec, "x": x, "y": y} for spec, entry in results.entries("hidden") for x, y in entry["points"]]),
        Table("calibration", "Quality over calibration text", calibration, {"setup, s": 1}),
        Table("inputs", "Scales of the inputs: online against static",
              [{"method": spec, **_quality(entry)} for spec, entry in results.entries("inputs")]),
        Table("contexts", "Quality over context",
              [{"method": spec, "context": row["context"], "windows": row["windows"], **_quality(row)}
               for spec, rows in results.entries("contexts") for row in rows]),
        _table("batches", "Generation over sequences at once", results, "batches", None,
               {"sequences": "sequences", "tps": "tokens/s", "min": "slowest run", "max": "fastest run"}),
        Table("ranks", "Ranks that divide this machine's cores", ranks),
        Table("fusion", "Codes made with the numbers, and after them",
              [{"method": spec, "rows": entry["rows"], "columns": entry["columns"], "fused, ms": entry["fused_ms"],
                "apart, ms": entry["apart_ms"], "ratio (median)": entry["ratio"], "low (95 %)": entry["ratio_low"],
                "high (95 %)": entry["ratio_high"]} for spec, entry in results.entries("fusion")]),
        _table("cache_bound", "Theorem 2: largest error as a share of the bound", results, "cache_bound", None,
               {"layer": "after layer", "share_8": "8 bits", "share_4": "4 bits", "share_2": "2 bits"}),
    ]


# ---- Figures of these measurements ----

def featured(results, most, group=None):
    """A few methods of different kinds."""
    wanted = []
    for method in ("smoothquant", "absmax", "gptq", "awq", "q4", "q8", ""):
        for spec in results.specs:
            if spec.startswith(method) and spec not in wanted and (group is None or spec in results[group]):
                wanted.append(spec)
                if method:
                    break
    return wanted[:most]


def figures(results, colours):
    return {"radar": _radar(results, colours), "spindles": _spindles(results, colours), "layers": _layers(results, colours),
            "distributions": _distributions(results, colours), "curves": _curves(results, colours)}


def _radar(results, colours):
    if "speed" not in results:
        return []

    def numbers(spec):
        tps = [results.number("speed", spec, test, "tps") or 0 for test in ("prompt", "generation")]
        return numpy.array([1 / results["quality"][spec]["ppl"], *tps, 1 / results["memory"][spec]["memory_bytes"],
                            1 / max(0.1, results["file"][spec]["setup_seconds"] or 0),
                            1 / (1 + results["file"][spec]["calibration_tokens"] / 1000)])
    best = numpy.max([numbers(spec) for spec in results.all], axis=0)
    series = {spec: (numbers(spec) / numpy.maximum(best, 1e-30)).tolist() for spec in ["base", *featured(results, 4)]}
    return [Figure(charts.radar("As the paper's Figure 4", ["perplexity", "prompt t/s", "generation t/s", "memory", "setup",
                                                           "calibration"], series, colours),
                   "Each axis is the best value divided by, or into, the method's own: 1 on the rim is the best of all "
                   "methods. Areas mislead: they depend on the order of the axes, and a perplexity that matters moves a "
                   "point by a hair. The chart of size against KL does not.")]


def _spindles(results, colours):
    if "speed" not in results:
        return []
    measured = [spec for spec in results.all if spec in results["speed"]]
    ppl = {spec: results["quality"][spec]["ppl"] for spec in measured}
    tps = {spec: results["speed"][spec]["generation"]["tps"] for spec in measured}
    memory = {spec: results["memory"][spec]["memory_bytes"] / 1e6 for spec in measured}
    made = [Figure(charts.bars(title, unit, rows, colours=colours, centred=True)) for title, unit, rows in (
        ("Perplexity", "smaller is better", ppl), ("Generation", "tokens per second", tps),
        ("Memory", "MB, weights, cache and scratch", memory),
        ("Speed divided by perplexity", "the paper's \"efficiency score\"", {spec: tps[spec] / ppl[spec] for spec in ppl}))]
    made[-1].caption = "A ratio of two unlike things: it rewards whatever is fast, however wrong."
    return made


def _layers(results, colours):
    entries = {spec: entry["layers"] for spec, entry in results.entries("layers") if spec in results.specs}
    if not entries:
        return []
    made = []
    for key, title, caption in (
            ("kl_alone", "KL divergence with one layer quantized",
             "Nats, where this layer alone is taken from the quantized file."),
            ("error", "Error of the hidden states over depth",
             "Relative to the hidden states of the unquantized model; the error of layer L is what all layers up to L "
             "have made.")):
        rows = {spec: [row for row in layers if key in row] for spec, layers in entries.items()}
        names = ["emb" if row["layer"] < 0 else str(row["layer"]) for row in next(iter(rows.values()))]
        cells = [[row[key] if row[key] > 0 else None for row in layers] for layers in rows.values()]
        wide = len(names) > 14
        made.append(Figure(charts.heat(title, "after layer", list(rows), names, cells, numbers=not wide,
                                       cell=(20 if wide else 52, 24)), caption))
    for spec in featured(results, 4, "layers"):
        series = {name: [(row["layer"], row[key]) for row in entries[spec]] for name, key in (
            ("measured error", "share_error"), ("sum with measured gains", "share_bound"),
            ("L e, as the theorem says", "share_linear"), ("C^L, as its proof says", "share_worst"))}
        dashes = list(series)[2:]
        made.append(Figure(charts.lines(f"Error over depth, {spec}", "after layer (-1: the embedding)",
                                        "share of the last hidden states", series,
                                        _LINES | {"measured error": colours[spec]}, log_y=True, dashed=dashes)))
    if "bits" in results:
        made.append(_bits(results))
    return made


_LINES = {"sum with measured gains": "#888888", "L e, as the theorem says": "#888888", "C^L, as its proof says": "#bbbbbb"}


def _bits(results):
    units = [unit for _, entry in results.entries("bits") for unit in entry["units"]]
    kinds = list(dict.fromkeys(unit["kind"] for unit in units))
    layers = sorted({unit["layer"] for unit in units})
    bits = {(unit["kind"], unit["layer"]): unit["bits"] for unit in units}
    return Figure(charts.heat("Bits chosen by a search", "layer", kinds, [str(layer) for layer in layers],
                              [[bits.get((kind, layer)) for layer in layers] for kind in kinds], log=False,
                              cell=(22 if len(layers) > 14 else 46, 24)),
                  "By measured sensitivity, at most 4.25 bits on average, scales included.")


def _shares(counts):
    total = sum(counts)
    return [(-4 + 8 * (i + 0.5) / _BINS, count / total) for i, count in enumerate(counts)]


def _distributions(results, colours):
    made, middle = [], results["model"]["layers"] // 2
    few = ["base", *featured(results, 3)]
    inputs = {spec: results["activations"][spec]["sites"] for spec in few if spec in results["activations"]}
    if "base" in inputs:
        sites = inputs["base"]
        width = max(len(site["channels"]) for site in sites)
        cells = [[*site["channels"], *[None] * (width - len(site["channels"]))] for site in sites]
        made.append(Figure(charts.heat(
            "Outlier channels: largest input of a channel, multiples of the median", "stretches of neighbouring channels",
            [f"{site['layer']} {site['site']}" for site in sites], range(width), cells, numbers=False,
            cell=(10, 8 if len(sites) > 40 else 14)),
            "Rows are the inputs of each layer's linears. Stripes that go down the map are channels that stand out in "
            "every layer."))
        for name in [site["site"] for site in sites if site["layer"] == middle]:
            series = {spec: _shares(site["counts"]) for spec, all_sites in inputs.items() for site in all_sites
                      if site["site"] == name and site["layer"] == middle}
            made.append(Figure(charts.lines(f"Inputs of {name}, middle layer", "input, in units of its own RMS",
                                            "share of the inputs", series, colours, log_y=True, markers=False),
                               "base: as they are; the others: as the method folds and rounds them. The outer bins hold "
                               "all that lies beyond."))
    weights = {spec: results["weights"][spec]["parts"] for spec in few if spec in results["weights"]}
    if "base" in weights:
        for part in dict.fromkeys((weights["base"][0]["part"], weights["base"][-1]["part"])):
            series = {spec: _shares(one["counts"]) for spec, parts in weights.items() for one in parts
                      if one["part"] == part}
            made.append(Figure(charts.lines(f"Weights of {part}, middle layer",
                                            "weight, in standard deviations of its own tensor", "share of the weights",
                                            series, colours, markers=False)))
        made[-1].caption = ("Few codes show as spikes: they are the values that the type has. Tails beyond 4 deviations "
                            "are counted in the last bin.")
    hidden = {spec: results["hidden"][spec] for spec in few if spec in results["hidden"]}
    if len(hidden) > 1 and "base" in hidden:
        explained = hidden["base"]["explained"]
        series = {spec: (f"{spec} (moved {100 * entry['shift']:.3g} %)", entry["points"]) for spec, entry in hidden.items()}
        made.append(Figure(charts.cloud("Hidden states after the last layer (PCA)",
                                        f"axis 1, {100 * explained[0]:.1f} % of the variance",
                                        f"axis 2, {100 * explained[1]:.1f} %", series, colours),
                           "A point for each token but the first, whose states are many times larger than all others in many "
                           "models (massive activations) and would be an axis of their own. Both axes are those of the "
                           "unquantized model, whose points are grey in each panel; \"moved\" is the mean distance from "
                           "them as a share of their spread. Unlike the paper's t-SNE, distances mean something."))
    return made


def _curves(results, colours):
    made = []

    def curve(group, title, x, y, key, value, error=None, skip=()):
        series = {}
        for spec, rows in results.entries(group):
            if spec not in skip:
                series[spec] = [(row[key], row[value]) if error is None else
                                (row[key], row[value], row[value] - 1.96 * row[error], row[value] + 1.96 * row[error])
                                for row in rows]
        if series:
            made.append(Figure(charts.lines(title, x, y, series, colours, log_x=True, log_y=True)))
    if "calibration" in results:
        series = {}
        for spec, _ in results.entries("calibration"):
            method, windows = spec.rsplit("#", 1)
            kl = results.kl(spec, "calibration")
            series.setdefault(method, []).append((int(windows), kl.value, kl.low, kl.high))
        made.append(Figure(charts.lines("KL divergence over calibration windows", "windows of calibration text",
                                        "KL divergence, nats", {name: sorted(points) for name, points in series.items()},
                                        colours, log_x=True, log_y=True),
                           "Bars: 95 % intervals over the windows of the text that is measured; the paired test in the "
                           "claims is sharper."))
    if "inputs" in results:
        kls = {spec: results.kl(spec, "inputs") for spec, _ in results.entries("inputs")}
        made.append(Figure(charts.intervals("Scales of the inputs", "KL divergence, nats",
                                            {spec: (kl.value, kl.low, kl.high) for spec, kl in kls.items()}, colours,
                                            log_x=True),
                           "row: a scale for each token; g128: for 128 columns of it; tensor: one, from calibration; "
                           "online: one that follows the inputs."))
    curve("contexts", "Perplexity over context", "positions", "perplexity", "context", "ppl")
    curve("contexts", "KL divergence over context", "positions", "KL divergence, nats", "context", "kl_mean",
          "kl_mean_stderr", ("base",))
    curve("batches", "Generation over sequences at once", "sequences", "tokens per second", "sequences", "tps")
    for spec, rows in results.entries("ranks"):
        if len(rows) < 2:
            continue
        series = {f"{spec}, {test}": [(row["ranks"], row[test]["tps"] / rows[0][test]["tps"]) for row in rows]
                  for test in ("prompt", "generation")}
        made.append(Figure(charts.lines("Speed over ranks of this machine", "ranks", "times the speed of one rank", series,
                                        colours, names=dict.fromkeys(series, spec)),
                           "Ranks divide the same cores, so that 1 is all that there is to win; logits are equal."))
    return made


# ---- The paper's own numbers: quoted, never measured here, never in one table with measured ones ----

_PERPLEXITY = {"GPT-2 (117M)": (4.01, 6.31, 7.16, 6.89, 7.23, 8.93), "GPT-2 (345M)": (3.78, 5.89, 6.67, 6.45, 6.78, 8.12),
               "LLaMA-7B": (5.68, 6.12, 6.45, 6.23, 6.56, 7.89), "LLaMA-13B": (5.23, 5.67, 5.89, 5.71, 5.94, 7.12),
               "Mistral-7B": (4.89, 5.34, 5.67, 5.41, 5.78, 6.95), "Qwen3-14B": (4.67, 5.12, 5.38, 5.19, 5.45, 6.67)}
_QUANTIZED = ("SmoothQuant", "SimQuant", "AWQ", "GPTQ", "ZeroQuant")
_SPEED = {"FP16": (2456, 1247, 1189, 892, 56.2), "TensorRT-LLM": (3234, 2134, 2067, 1456, 28.1),
          "GPTQ (4 bits)": (2789, 1987, 1923, 1378, 14.7), "AWQ (4 bits)": (2934, 2089, 2012, 1423, 15.2),
          "SmoothQuant": (3156, 2156, 2078, 1467, 28.9), "SimQuant": (3089, 2098, 2034, 1445, 26.3),
          "ZeroQuant": (2967, 2023, 1956, 1389, 24.7)}
_MATRIX = {
    "GPT-2": ((7.23, 6.89, 7.45, 6.31, "+9.1%"), (2789, 2934, 3234, 3156, "-2.4%"), (3.2, 3.4, 6.8, 6.9, "-1.5%"),
              (12, 10, 3, 2, "+33%"), (32, 32, 128, 16, "+87%")),
    "LLaMA-7B": ((6.56, 6.23, 6.45, 6.12, "+1.8%"), (1987, 2089, 2134, 2156, "+1.0%"), (14.7, 15.2, 28.1, 28.9, "-2.8%"),
                 (45, 38, 12, 8, "+33%"), (128, 128, 512, 64, "+87%")),
    "Mistral-7B": ((5.78, 5.41, 5.67, 5.34, "+1.3%"), (1923, 2012, 2067, 2078, "+0.5%"), (14.2, 14.8, 27.3, 28.1, "-2.9%"),
                   (42, 35, 11, 7, "+36%"), (125, 125, 498, 62, "+88%")),
    "Qwen3-14B": ((5.45, 5.19, 5.38, 5.12, "+1.4%"), (1378, 1423, 1456, 1467, "+0.8%"), (28.4, 29.1, 56.2, 57.8, "-2.8%"),
                  (78, 65, 21, 14, "+33%"), (256, 256, 1024, 128, "+87%"))}
_MEASURES = ("perplexity", "tokens/s", "memory, GB", "setup, min", "calibration samples")
_EIGHT_BITS = {"GPT-2": 4.01, "GPT-2 INT8": 6.83, "GPT-2 AbsMax Quantize": 9.32, "GPT-2 ZeroPoint Quantize": 8.93,
               "GPT-2 Smooth Quant Apply": 6.31, "GPT-2 Sim Quantize": 7.16, "GPT-2 Sym Quantize 8bit": 7.01,
               "GPT-2 Sym Quantize 8bit ZeroQuant Func": 7.37}
_PARTS = {"FP16": (24.1, 0.0, 38.4, 1.5, 2.3), "INT8 (Sym)": (12.3, 3.5, 22.5, 2.7, 3.0),
          "SimQuant": (11.1, 4.2, 20.1, 3.3, 3.5), "SmoothQuant": (10.8, 4.0, 19.5, 3.1, 3.4)}


def reported_tables():
    def rows(first, columns, numbers):
        return [{first: name, **dict(zip(columns, values)), "source": "reported"} for name, values in numbers.items()]
    matrix = [{"model": model, "measure": measure, **dict(zip(("GPTQ", "AWQ", "TensorRT", "LLMEasyQuant", "improvement"),
                                                              values)), "source": "reported"}
              for model, all_values in _MATRIX.items() for measure, values in zip(_MEASURES, all_values)]
    return [Table("reported_perplexity", "Table 1: perplexity, WikiText-2", rows("model", ("FP16", *_QUANTIZED), _PERPLEXITY)),
            Table("reported_speed", "Table 2: tokens per second, 8 A100",
                  rows("method", ("GPT-2", "LLaMA-7B", "Mistral-7B", "Qwen3-14B", "memory, GB"), _SPEED)),
            Table("reported_matrix", "Table 3: comparison at 8K positions", matrix),
            Table("reported_eight_bits", "Table 4: perplexity of GPT-2",
                  rows("method", ("perplexity",), {name: (ppl,) for name, ppl in _EIGHT_BITS.items()})),
            Table("reported_parts", "Table 5: ms per layer, GPT-2, 8 A100",
                  rows("method", ("load", "quant", "gemm", "comm", "sync"), _PARTS))]


# ---- Claims ----

HOLDS, IN_PART, REFUTED, NOT_TRIED = "holds", "holds in part", "does not hold here", "not tried"
_BADGES = {HOLDS: "holds", IN_PART: "in-part", REFUTED: "refuted", NOT_TRIED: "not-tried"}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: its words with their scope, what its own tables say, and what is found here."""

    text: str
    place: str
    quote: str
    own: str
    verdict: str
    found: str

    @property
    def badge(self):
        return _BADGES[self.verdict]


def _part(*held):
    """The verdict of several conditions."""
    return HOLDS if all(held) else IN_PART if any(held) else REFUTED


def _percent(share, digits=3):
    return f"{significant(100.0 * share, digits)} %"


def _nats(value):
    return f"{significant(value)} nats"


def _listed(words):
    return ", ".join(words) if words else "none"


def spec_of(results, method):
    """The candidate of a method in this comparison, or None."""
    return next((spec for spec in results.specs if spec.split(":")[0].split("+")[0].split("@")[0] == method
                 and "#" not in spec), None)


def _why_not(results, group):
    return next((f"{one['reason']}." for one in results["not_measured"] if one["measurement"] == group), "Not measured.")


def _noise(results, *tested):
    """Why no verdict of speed is possible, or None: `tested` are (spec, test)."""
    noisy = [f"{spec} ({test})" for spec, test in tested if is_noisy(results["speed"][spec][test])]
    return f"Other programs used the cores while {_listed(noisy)} ran: their runs differ too much for a verdict; " \
           "repeat with --again speed. " if noisy else None


def _best_accuracy(results):
    smooth = spec_of(results, "smoothquant")
    others = [spec for spec in results.specs if spec != smooth]
    if smooth is None or not others:
        return NOT_TRIED, "SmoothQuant and another method must both be among those that are compared."
    outcomes = results.pairs("window_kl")
    verdicts = {other: outcomes[other, smooth].verdict for other in others}
    better = [other for other in others if verdicts[other] == "better"]
    equal = [other for other in others if verdicts[other] == "no difference shown"]
    found = f"Compared with {_listed(others)}. KL of {smooth}: {_nats(results.kl(smooth).value)}; "
    if better:
        return REFUTED, found + ("nearer to the unquantized model, by paired tests with Bonferroni's correction: "
                                 f"{_listed(better)}.")
    if equal:
        return IN_PART, found + f"no difference shown from {_listed(equal)}."
    return HOLDS, found + "less than each of these."


def _growths(results):
    exact = results["quality"]["base"]["ppl"]
    return {spec: results["quality"][spec]["ppl"] / exact - 1 for spec in results.specs}


def _small_degradation(results):
    growths, parameters = _growths(results), results["model"]["parameters"]
    worst = max(growths, key=growths.get)
    over = [f"{spec} ({_percent(growth)})" for spec, growth in growths.items() if growth > 0.1]
    found = f"of {len(growths)} methods perplexity grows most by {worst}, {_percent(growths[worst])}; over 10 %: {_listed(over)}."
    if parameters < 13e9:
        return NOT_TRIED, (f"The sentence is about models of 13 billion parameters and more, this one has "
                           f"{parameters / 1e6:,.1f} million; here {found}")
    return (REFUTED if over else HOLDS), found[0].upper() + found[1:]


def _own_growths(model):
    exact, *others = _PERPLEXITY[model]
    return {name: ppl / exact - 1 for name, ppl in zip(_QUANTIZED, others)}


def _own_degradation():
    words = []
    for model in ("LLaMA-13B", "Qwen3-14B"):
        over = {name: growth for name, growth in _own_growths(model).items() if growth > 0.1}
        words.append(f"{model} " + ", ".join(f"{name} +{100 * growth:.1f} %" for name, growth in over.items()))
    return f"Table 1 refutes it: {'; '.join(words)}."


def _own_tensorrt():
    gains = [ours / theirs - 1 for ours, theirs in zip(_SPEED["SmoothQuant"][:4], _SPEED["TensorRT-LLM"][:4])]
    names = ("GPT-2", "LLaMA-7B", "Mistral-7B", "Qwen3-14B")
    return "Table 2 refutes it: " + ", ".join(f"{name} {100 * gain:+.1f} %" for name, gain in zip(names, gains)) + "."


def _faster(results):
    smooth = spec_of(results, "smoothquant")
    if smooth is None or smooth not in results["speed"]:
        return NOT_TRIED, "No speeds of SmoothQuant."
    noise = _noise(results, *((spec, test) for spec in ("base", smooth) for test in ("prompt", "generation")))
    ratios = [results["speed"][smooth][test]["tps"] / results["speed"]["base"][test]["tps"]
              for test in ("prompt", "generation")]
    found = (f"Prompt {ratios[0]:.2f} times, generation {ratios[1]:.2f} times that of {results['file']['base']['type']}, "
             "medians on this processor.")
    return (NOT_TRIED, noise + found) if noise else (_part(*(ratio >= 1.7 for ratio in ratios)), found)


def _simquant_cost(results):
    sim, smooth = spec_of(results, "simquant"), spec_of(results, "smoothquant")
    if sim not in results["speed"] or smooth not in results["speed"]:
        return NOT_TRIED, "Speeds of SimQuant and SmoothQuant must both be measured."
    noise = _noise(results, (sim, "generation"), (smooth, "generation"))
    speed = results["speed"][sim]["generation"]["tps"] / results["speed"][smooth]["generation"]["tps"]
    memory = results["memory"][sim]["memory_bytes"] / results["memory"][smooth]["memory_bytes"]
    found = (f"Generation at {_percent(speed)} of SmoothQuant's speed, {_percent(memory)} of its memory: SimQuant quantizes "
             "the cache and leaves the weights.")
    return (NOT_TRIED, noise + found) if noise else (_part(speed >= 0.95, memory < 1), found)


def _half_memory(results):
    unquantized = results["file"]["base"]["bits_per_weight"]
    exact = min(16.0, unquantized)  # the paper's baseline
    shares = {spec: results["file"][spec]["bits_per_weight"] for spec in results.specs if not results.keeps_weights(spec)}
    over = [f"{spec} {_percent(bits / exact)}" for spec, bits in shares.items()
            if bits / exact > 1.25 * (0.25 if bits < 7.5 else 0.5)]
    if not shares:
        return NOT_TRIED, "No method that quantizes weights was compared."
    unit = f"of {exact:.2f} bits a weight"
    if over:
        return IN_PART, f"More than a quarter above these shares {unit}: {_listed(over)} (scales, and tables kept at 8 bits)."
    return HOLDS, f"None of {_listed(list(shares))} is a quarter above these shares {unit}."


def _less_calibration(results):
    found, enough = [], []
    for method in ("smoothquant:int8", "gptq"):
        points = sorted((int(spec.rsplit("#", 1)[1]), spec) for spec in results["calibration"] if spec.startswith(method + "#"))
        if len(points) < 2:
            continue
        most, full = points[-1]
        few = max((point for point in points if point[0] * 8 <= most), default=points[0])
        lists = [results["calibration"][spec]["window_kl"] for spec in (few[1], full)]
        test = paired(*lists)
        relative = test.mean / numpy.mean(lists[1])
        enough.append(not (test.p < SIGNIFICANCE and relative > 0.05))
        found.append(f"{method}: {few[0]} for {most} windows changes KL by {_percent(relative)} (p {test.p:.3f})")
    return (_part(*enough), "; ".join(found) + ".") if found else (NOT_TRIED, _why_not(results, "calibration"))


def _online_scales(results):
    names = [f"smoothquant:int8+{act}" for act in ("online", "tensor", "row")]
    if not all(name in results["inputs"] for name in names):
        return NOT_TRIED, _why_not(results, "inputs")
    online, fixed, row = (results["inputs"][name]["window_kl"] for name in names)
    tests = [paired(online, other) for other in (fixed, row)]
    kls = [_nats(results.kl(name, "inputs").value) for name in names]
    worse = tests[0].p < SIGNIFICANCE and tests[0].mean > 0
    return (IN_PART if worse else HOLDS), (
        f"A moving scale needs no calibrated one: KL {kls[0]}, with a scale fixed by calibration {kls[1]} (p "
        f"{tests[0].p:.3f}), with one for each token {kls[2]} (p {tests[1].p:.3f}). The paper claims no equal quality.")


def _long_contexts(results):
    cache, smooth = results["contexts"].get("simquant:4"), results["contexts"].get("smoothquant:int8")
    if not cache or not smooth or len(cache) != len(smooth):
        return NOT_TRIED, _why_not(results, "contexts")
    growths = [rows[-1]["kl_mean"] / rows[0]["kl_mean"] for rows in (cache, smooth)]
    longest = cache[-1]["context"]
    found = (f"At {longest:,} positions KL of a 4-bit cache {_nats(cache[-1]['kl_mean'])}, of SmoothQuant "
             f"{_nats(smooth[-1]['kl_mean'])}; from the shortest context on they change {growths[0]:.2f} and {growths[1]:.2f} times.")
    if longest < 32768:
        return NOT_TRIED, f"The sentence is about 32,768 positions and more. {found}"
    return _part(growths[0] <= growths[1], cache[-1]["kl_mean"] < smooth[-1]["kl_mean"]), found


def _tighter_weights(results):
    smooth, plain = spec_of(results, "smoothquant"), spec_of(results, "absmax")
    if smooth not in results["weights"] or plain not in results["weights"]:
        return NOT_TRIED, "SmoothQuant and absmax must both be among the methods."

    def mean(spec, key):
        return float(numpy.mean([abs(part[key]) for part in results["weights"][spec]["parts"]]))
    kurtosis, skewness = ([mean(spec, key) for spec in (smooth, plain)] for key in ("kurtosis", "skewness"))
    return _part(kurtosis[0] < kurtosis[1], skewness[0] < skewness[1]), (
        f"Mean kurtosis of the middle layer {kurtosis[0]:.2f} beside {kurtosis[1]:.2f} of absmax (3 is normal), mean "
        f"|skewness| {skewness[0]:.3f} beside {skewness[1]:.3f}: the method moves outliers into weights.")


def _gemm_share(results):
    smooth = spec_of(results, "smoothquant")
    if smooth not in results["speed"]:
        return NOT_TRIED, "No speeds of SmoothQuant."
    own, base = (results["speed"][spec]["generation_parts"] for spec in (smooth, "base"))
    saved, added = 1 - own["gemm"] / base["gemm"], (own["quant"] - base["quant"]) / base["step_ms"]
    found = (f"Matrix products of a generated token take {_percent(1 - saved)} of the unquantized time (the paper: 51 %); norms "
             f"and quantization add {_percent(added)} of its step.")
    noise = _noise(results, ("base", "generation"), (smooth, "generation"))
    return (NOT_TRIED, noise + found) if noise else (_part(saved >= 0.49, added <= 0.05), found)


def _fused(results):
    entry = results["fusion"].get("smoothquant:int8")
    if entry is None:
        return NOT_TRIED, _why_not(results, "fusion")
    verdict = HOLDS if entry["ratio_high"] < 1 else IN_PART if entry["ratio_low"] < 1 else REFUTED
    return verdict, (f"A norm of {entry['rows']} rows that writes codes takes {entry['ratio']:.2f} ({entry['ratio_low']:.2f} to "
                     f"{entry['ratio_high']:.2f}; median of the ratios) of a norm and a pass that makes the codes after it, on "
                     "this processor, where rows stay in caches.")


def _near_linear(results):
    rows = results["ranks"].get("smoothquant:int8")
    if rows is None:
        return NOT_TRIED, _why_not(results, "ranks")
    if len(rows) < 2:
        return NOT_TRIED, "One core, or one kv head: nothing to divide."
    ratio = rows[-1]["prompt"]["tps"] / rows[0]["prompt"]["tps"]
    return NOT_TRIED, (f"Ranks of one machine divide the same cores: {rows[-1]['ranks']} of them read a prompt at {ratio:.2f} times "
                       "the speed of one, with equal logits. More processors than one machine has were not there.")


def _significant(results):
    own = [spec for spec in (spec_of(results, name) for name in ("smoothquant", "simquant", "zeroquant")) if spec]
    baselines = [spec for spec in (spec_of(results, name) for name in ("gptq", "awq")) if spec]
    if not own or not baselines:
        return NOT_TRIED, "One of SmoothQuant, SimQuant and ZeroQuant and one of GPTQ and AWQ must be among the methods."
    outcomes = results.pairs("window_nll")
    pairs = [outcomes[one, other] for one in own for other in baselines]
    better = [f"{pair.first} over {pair.second}" for pair in pairs if pair.verdict == "better" and pair.corrected < 0.01]
    return _part(*(pair.verdict == "better" and pair.corrected < 0.01 for pair in pairs)), (
        f"Of {len(pairs)} pairs of {_listed(own)} with {_listed(baselines)}, improved in log-likelihood at p < 0.01 after "
        f"Bonferroni's correction: {_listed(better)}.")


def _cache_bound(results):
    rows = results["cache_bound"].get("simquant:8")
    if rows is None:
        return NOT_TRIED, _why_not(results, "cache_bound")
    largest = max(row[f"share_{bits}"] for row in rows for bits in (8, 4, 2))
    return _part(largest <= 1), (f"Largest error: {largest:.3f} of the bound, which is loose by 2: rounding errs by half a step.")


def _error_bound(results):
    """Decided by the candidate with the largest errors, because a bound must hold for all."""
    rows = [(row["share_error"] / row["share_linear"], spec, row) for spec, entry in results.entries("layers")
            for row in entry["layers"] if row["share_linear"] > 0]
    if not rows:
        return NOT_TRIED, _why_not(results, "layers")
    gain = max(row["gain"] for _, _, row in rows)
    largest, spec, row = max(rows, key=lambda one: one[0])
    words = f" The largest gain of a layer is {gain:.2f}: with C > 1 the proof's own C^L grows exponentially."
    if largest <= 1:
        return (IN_PART if gain > 1 else HOLDS), (f"Measured errors of {len(results['layers'])} methods are at most {largest:.2f} of "
                                                  f"L times the largest error of a layer.{words}")
    return REFUTED, (f"{spec} has {largest:.2f} times L times the largest error of a layer after layer {row['layer']}.{words}")


def _diverse(results):
    model = results["model"]
    if not model["recurrent_layers"]:
        return NOT_TRIED, "A page is about one model, and this one has attention in every layer, as the paper's have."
    kls = [results.kl(spec).value for spec in results.specs]
    missing = len(results["not_measured"] or [])
    found = (f"{model['recurrent_layers']} of {model['layers']} layers are recurrent; {len(kls)} methods quantize them, KL "
             f"{_nats(min(kls))} to {_nats(max(kls))}")
    return (IN_PART, f"{found}; left out: {missing} measurements.") if missing else (HOLDS, found + ".")


def claims(results):
    models = ("GPT-2", "LLaMA-7B", "Mistral-7B", "Qwen3-14B")
    speeds = ", ".join(f"{name} {fast / exact:.2f} times"
                       for name, fast, exact in zip(models, _SPEED["SmoothQuant"], _SPEED["FP16"]))
    sizes = ", ".join(f"{model} +{100 * _own_growths(model)['SmoothQuant']:.1f} %" for model in _PERPLEXITY)
    return [Claim(text, place, quote, own, *decide(results)) for text, place, quote, own, decide in (
        ("SmoothQuant has the best accuracy",
         "section 4.2; A.3.3: SmoothQuant achieves the best perplexity scores across all models",
         "SmoothQuant maintaining the best accuracy-efficiency tradeoff",
         "Tables 1, 3 and 4 agree: SmoothQuant has the lowest perplexity of the quantized rows.", _best_accuracy),
        ("On larger models perplexity grows by less than 10 %", "section 4.2",
         "Notably, larger models (LLaMA-13B, Qwen3-14B) exhibit better quantization robustness, with perplexity degradation "
         "remaining under 10% across all methods.", _own_degradation(), _small_degradation),
        ("Larger models are more robust", "section 4.2",
         "larger models (LLaMA-13B, Qwen3-14B) exhibit better quantization robustness",
         f"SmoothQuant in Table 1: {sizes}: from 7B on not less for larger models.",
         lambda _: (NOT_TRIED, "A page is about one model; compare the pages of two.")),
        ("SmoothQuant runs 1.7 times as fast as FP16", "Table 2, LLaMA-7B on 8 A100",
         "The toolkit achieves competitive throughput (2,156 tokens/second on LLaMA-7B)",
         f"Table 2: {speeds}.", _faster),
        ("SmoothQuant is 1.0 to 1.5 % faster than TensorRT-LLM", "section 4.3, section 6",
         "with SmoothQuant implementation outperforming TensorRT-LLM by 1.0-1.5% across all models", _own_tensorrt(),
         lambda _: (NOT_TRIED, "TensorRT-LLM does not run on this processor.")),
        ("SimQuant: about SmoothQuant's speed, with less memory", "Tables 2 and 3, A.3.1",
         "SimQuant shows strong performance in memory efficiency and calibration requirements",
         "Table 2, LLaMA-7B: 2,098 for 2,156 tokens/s; 26.3 for 28.9 GB.", _simquant_cost),
        ("8 bits halve the memory, 4 bits quarter it", "section 4.3, Table 2",
         "The memory efficiency gains are substantial, enabling deployment of larger models on the same hardware infrastructure.",
         "Table 2: 56.2 GB of FP16, 28.9 of SmoothQuant, 14.7 of GPTQ with 4 bits.", _half_memory),
        ("87 % less calibration data is enough", "section 4.5, Table 3 (16 samples for 128)",
         "requiring minimal calibration data and setup time",
         "Table 3: +87 % is against TensorRT alone; against GPTQ and AWQ it is 50 %.", _less_calibration),
        ("SimQuant is superior for long contexts", "section 4.4, Figure 8",
         "Context efficiency: SimQuant shows superior performance for long sequences (32K+ tokens)",
         "No table has such a context: Tables 1 to 5 show one each.", _long_contexts),
        ("SmoothQuant's weights are tighter and more symmetric", "section 4.7, Figure 1",
         "methods like SmoothQuant and SimQuant exhibit tighter, more symmetric quantization histograms centered near zero, while "
         "AbsMax and ZeroPoint show saturation and truncation near representational boundaries",
         "Histograms alone, without numbers.", _tighter_weights),
        ("SmoothQuant takes 49 % off the matrix products", "section 4.7, Table 5: GPT-2, 32K positions, 8 A100",
         "SmoothQuant reduces GEMM time by 49% and memory load time by 55% over FP16",
         f"Table 5 agrees: {_PARTS['FP16'][2]} to {_PARTS['SmoothQuant'][2]} ms; quantization adds {_PARTS['SmoothQuant'][1]} of "
         f"{sum(_PARTS['FP16']):.1f} ms.", _gemm_share),
        ("Fused quantization costs less than a pass of its own", "section 3.2, Theorems 6 and 9",
         "The fused quantization kernel reduces memory bandwidth by O(1/b) compared to separate quantization and GEMM operations",
         "No table has separate kernels.", _fused),
        ("Online scales need no full recalibration", "section 3.4",
         "For activation quantization, the system supports dynamic rescaling without full recalibration.",
         "No table compares online with static scales.", _online_scales),
        ("Throughput scales nearly linearly over devices", "abstract", "near-linear multi-GPU scaling",
         "No table varies the number of GPUs.", _near_linear),
        ("Its improvements are significant, p < 0.01", "appendix A.4",
         "LLMEasyQuant's improvements are statistically significant (p < 0.01) across all metrics and models",
         "No table has a deviation, a number of runs or a p.", _significant),
        ("The error of SimQuant is at most (max - min) / (2^b - 1)", "Theorem 2",
         "For SimQuant with bitwidth b and channel-wise quantization, the reconstruction error is bounded by",
         "Its proof gives half of the bound: |X - X'| is at most half a step (29, 30).", _cache_bound),
        ("The error after L layers grows as O(L e)", "Theorems 7 and 10",
         "For a transformer with L layers, the accumulated quantization error grows as O(L e) where e is the per-layer quantization "
         "error bound.", "Its proof ends with L e C^L (49), which is O(L e) only where no layer has a gain above 1.", _error_bound),
        ("Is for diverse architectures", "section 6",
         "provide confidence in its practical deployment across diverse LLM architectures and deployment scenarios",
         "Its models are dense transformers; none is a hybrid.", _diverse))]


def claims_table(found):
    return Table("claims", "The paper's claims, tried", [
        {"claim": claim.text, "where": claim.place, "the paper's words": claim.quote, "its own tables": claim.own,
         "verdict": claim.verdict, "found": claim.found} for claim in found])


# ---- The paper's tables asked here ----

def _speed(test):
    return lambda results, spec: results.number("speed", spec, test, "tps")


def _long(key):
    return lambda results, spec: (results["contexts"].get(spec) or [{}])[-1].get(key)


def _number(group, key, unit=1):
    def value(results, spec):
        found = results.number(group, spec, key)
        return found if found is None or unit == 1 else found / unit
    return value


# (name, whether less is better, value)
_ASKED = (("perplexity", True, _number("quality", "ppl")), ("KL divergence, nats", True, _number("quality", "kl_mean")),
          ("longest context, positions", False, _long("context")),
          ("perplexity at the longest context", True, _long("ppl")),
          ("KL divergence at the longest context, nats", True, _long("kl_mean")),
          ("prompt, tokens/s", False, _speed("prompt")), ("generation, tokens/s", False, _speed("generation")),
          ("memory for up to 8,192 positions, MB", True, _number("memory", "long_memory_bytes", 1e6)),
          ("file, MB", True, _number("file", "file_bytes", 1e6)), ("setup, s", True, _number("file", "setup_seconds")),
          ("calibration, tokens", True, _number("file", "calibration_tokens")))


def _matrix_rows(results):
    specs = [spec_of(results, name) for name in ("gptq", "awq", "smoothquant")]
    if None in specs:
        return []
    rows = []
    for name, less, value in _ASKED:
        values = [value(results, spec) for spec in specs]
        if None in values:
            continue
        other, own = (min if less else max)(values[:2]), values[2]
        ahead = None if other <= 0 or own <= 0 else (1 - own / other if less else own / other - 1)
        rows.append({"measure": name, "GPTQ": values[0], "AWQ": values[1], "SmoothQuant": own,
                     "SmoothQuant ahead by, %": None if ahead is None else 100 * ahead})
    return rows


def _eight_bit_specs(results):
    return [spec for spec in results.specs if results.keeps_weights(spec)
            or 7.5 < results["file"][spec]["bits_per_weight"] < 9.5]


_ROWS_OF_TABLE_4 = {"base": "GPT-2", "absmax": "AbsMax Quantize, Sym Quantize 8bit", "zeropoint": "ZeroPoint Quantize",
                    "smoothquant": "Smooth Quant Apply", "simquant": "Sim Quantize", "zeroquant": "Sym Quantize 8bit ZeroQuant Func"}


def own_tables(results):
    specs, exact = _eight_bit_specs(results), results["quality"]["base"]["ppl"]
    rows = [{"method": spec, "row of the paper": next((row for name, row in _ROWS_OF_TABLE_4.items()
                                                       if spec.startswith(name)), ""),
             "perplexity": results["quality"][spec]["ppl"], "growth, %": 100 * (results["quality"][spec]["ppl"] / exact - 1),
             "KL, nats": results["quality"][spec]["kl_mean"]} for spec in (["base", *specs] if specs else [])]
    return [Table("table3", "The paper's Table 3, asked here", _matrix_rows(results), {"SmoothQuant ahead by, %": 1}),
            Table("table4", "The paper's Table 4, asked here", rows, {"perplexity": 4, "growth, %": 3})]


def _best_methods(results):
    order = sorted(results.specs, key=lambda spec: results.kl(spec).value)
    words = [f"{spec} ({significant(results.kl(spec).value)})" for spec in order]
    return f"Nearest to the unquantized model: {', '.join(words[:3])}; farthest: {words[-1]}, KL in nats."


def _speeds(results):
    if "base" not in results["speed"]:
        return "Not measured."
    words = []
    for test in ("prompt", "generation"):
        tps = {spec: results["speed"][spec][test]["tps"] for spec in results.all if spec in results["speed"]}
        fastest = max(tps, key=tps.get)
        noisy = any(is_noisy(results["speed"][spec][test]) for spec in (fastest, "base"))
        noise = " (other programs used the cores)" if noisy else ""
        words.append(f"{test}: {fastest}, {tps[fastest]:,.0f} tokens/s, the unquantized model {tps['base']:,.0f}{noise}")
    return f"Fastest {'; '.join(words)}."


def _matrix_answer(results):
    rows = [row for row in _matrix_rows(results) if row["SmoothQuant ahead by, %"]]
    if not rows:
        return "GPTQ, AWQ and SmoothQuant were not all compared."
    names = [[row["measure"].split(",")[0] for row in rows if (row["SmoothQuant ahead by, %"] > 0) == ahead]
             for ahead in (True, False)]
    return (f"SmoothQuant against the better of GPTQ and AWQ: ahead in {', '.join(names[0]) or 'nothing'}; behind in "
            f"{', '.join(names[1]) or 'nothing'}.")


def _eight_bits_answer(results):
    ppl = {spec: results["quality"][spec]["ppl"] for spec in _eight_bit_specs(results)}
    if not ppl:
        return "No method of 8 bits was compared."
    low, high = min(ppl, key=ppl.get), max(ppl, key=ppl.get)
    return (f"Perplexity {results['quality']['base']['ppl']:.3f} unquantized, {ppl[low]:.3f} ({low}) to {ppl[high]:.3f} ({high}) "
            "with 8 bits or a quantized cache.")


def _latency_answer(results):
    words = []
    for spec in ("base", spec_of(results, "smoothquant")):
        if spec in results["speed"]:
            parts = results["speed"][spec]["generation_parts"]
            words.append(f"{_percent(parts['gemm'] / parts['step_ms'])} and {_percent(parts['quant'] / parts['step_ms'])} ({spec})")
    return f"Of a generated token, matrix products and quantization take {'; '.join(words)}." if words else "Not measured."


def _context_answer(results):
    rows = [(spec, rows[-1]) for spec, rows in results.entries("contexts") if spec != "base" and rows]
    if not rows:
        return "Not measured."
    words = ", ".join(f"{spec} {significant(row['kl_mean'])}" for spec, row in rows)
    return (f"KL at {rows[0][1]['context']:,} positions: {words}. Calibration text and sequences at once too; model size is another page.")


def _significance_answer(results):
    outcomes = list(results.pairs("window_kl").values())
    differ = sum(outcome.corrected < SIGNIFICANCE for outcome in outcomes) // 2
    return f"{differ} of {len(outcomes) // 2} pairs differ in KL at 5 % after Bonferroni's correction."


def _where(group, words):
    return lambda results: words if group in results else "Not measured."


def answers_table(results):
    head, inside = "Head to head", "Weights, activations, hidden states"
    asked = (
        ("Table 1", "perplexity of each method", head, _best_methods),
        ("Table 2", "tokens per second and memory", head, _speeds),
        ("Table 3", "SmoothQuant beside GPTQ and AWQ in all measures", "The paper's Table 3", _matrix_answer),
        ("Table 4", "perplexity of methods of 8 bits", "The paper's Table 4", _eight_bits_answer),
        ("Table 5, Figure 3", "latency by part", "Latency by part", _latency_answer),
        ("Figure 1", "histograms of quantized weights", inside, _where("weights", "Of the middle layer; activations too.")),
        ("Figures 2 and 6", "perplexity, speed, memory side by side", "Head to head, spindles",
         _where("speed", "Bars around a middle line show the same numbers as the table.")),
        ("Figure 4", "radar of six measures", head,
         _where("speed", "A radar chart, with a note on why its areas mislead, beside size against KL.")),
        ("Figure 5", "throughput over model size and method", head,
         _where("speed", "A page is about one model: its column of the map is the table of speeds.")),
        ("Figure 7", "t-SNE of weight distributions", inside,
         _where("hidden", "Hidden states on their two main axes (PCA) instead: distances mean something.")),
        ("Figure 8", "quality over context", "Over calibration, context and batch", _context_answer),
        ("Appendix A.4", "significance of the differences", "Which differences are real", _significance_answer))
    return Table("answers", "The paper's tables and figures, answered here",
                 [{"paper": place, "asks": asks, "section": section, "found here": found(results)}
                  for place, asks, section, found in asked])
