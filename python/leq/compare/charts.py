"""Charts as SVG, drawn by matplotlib. Ink and grid take the page's colours, so that they fit light and dark."""

import io
import re

import matplotlib
import numpy
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

_INK, _GRID = "#010203", "#040506"  # marks that become CSS colours
_PALETTE = ("#1f77b4", "#e07b00", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17a2b8", "#9aa500", "#7f7f7f",
            "#5fa8e0", "#ffb45e", "#7ed07e", "#ff8a80", "#c3a6e6", "#c49c94", "#f7b6d2", "#7fdbe8", "#d8d84e", "#bdbdbd")
_PART_COLOURS = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#d8c81e")  # of no method
_HEAT = LinearSegmentedColormap.from_list("leq", ["#dbe9f6", "#6baed6", "#2171b5", "#08306b"])
matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "leq", "font.size": 10, "font.family": "sans-serif", "text.color": _INK,
    "axes.edgecolor": _GRID, "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK, "axes.grid": True,
    "grid.color": _GRID, "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False, "legend.fontsize": 9,
    "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.6, "lines.markersize": 4.5,
    "text.parse_math": False, "axes.formatter.use_mathtext": False})


class Colours:
    """One colour for each name on the whole page: those given first, in their order, then others as they come."""

    def __init__(self, names=()):
        self._of = {"base": _INK}
        for name in names:
            self[name]

    def __getitem__(self, name):
        return self._of.setdefault(name, _PALETTE[(len(self._of) - 1) % len(_PALETTE)])


def short_number(value):
    """0.001, 3e-07, 20, 1234, 23k, 400M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if unit <= abs(value) < 1e13:
            return f"{value / (1e3 if letter == 'k' else unit):.3g}{letter}"
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}"


def _ticks(axis, log):
    axis.set_major_formatter(lambda value, _: short_number(value))
    if log:
        axis.set_minor_formatter(lambda value, _: short_number(value) if _spans_less_than_a_decade(axis) else "")


def _spans_less_than_a_decade(axis):
    low, high = axis.get_view_interval()
    return high < 10 * low


class Drawing:
    """A figure; svg(name) is its markup, with ids that begin with the name."""

    def __init__(self, title, width, height, x="", y="", log_x=False, log_y=False, projection=None):
        self.figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        self.axes = self.figure.add_subplot(projection=projection)
        self.title, self.size = title, (width, height)
        if projection is None:
            self.axes.set(xlabel=x, ylabel=y, xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
            self.logs = log_x, log_y

    def numbers(self):
        _ticks(self.axes.xaxis, self.logs[0])
        _ticks(self.axes.yaxis, self.logs[1])

    def svg(self, name, alone=False):
        out = io.StringIO()
        self.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        markup = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue()[out.getvalue().index("<svg"):], flags=re.S)
        markup = re.sub(r'\b(id=")', rf"\1{name}-", markup)
        markup = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\1{name}-", markup)
        markup = markup.replace(_INK, "currentColor").replace(_GRID, "var(--grid, #ccc)")
        markup = re.sub(r"\n\s+", "\n", markup)
        label = self.title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
        if alone:
            style = "<style>svg{color:#222;--grid:#ccc}@media(prefers-color-scheme:dark){svg{color:#ddd;--grid:#444}}</style>"
            return markup.replace(">", f' role="img" aria-label="{label}">{style}', 1)
        markup = re.sub(r' (?:xmlns(?::xlink)?|version)="[^"]*"', "", markup).replace("xlink:href", "href")
        return markup.replace(">", f' role="img" aria-label="{label}">', 1)


def _bars_to(points):
    """Error bars [2][points] of (x, value, low, high)."""
    return numpy.array([[max(0, p[1] - p[2]) for p in points], [max(0, p[3] - p[1]) for p in points]])


def scatter(title, x, y, points, colours, width=520, height=400):
    """Named points {name: (x, value, low, high)} on log axes, and the staircase of those that none beats in both."""
    drawing = Drawing(title, width, height, x, y, log_x=True, log_y=True)
    axes = drawing.axes
    for name, point in points.items():
        axes.errorbar(point[0], point[1], yerr=_bars_to([point]), fmt="o", color=colours[name], capsize=2)
        axes.annotate(name, point[:2], xytext=(6, 4), textcoords="offset points", fontsize=8.5)
    front = [one for one in sorted(point[:2] for point in points.values())
             if all(one[1] <= other[1] for other in (p[:2] for p in points.values()) if other[0] <= one[0])]
    if len(front) > 1:
        axes.step(*zip(*front), where="post", color=_GRID, linestyle="--", zorder=0, gid="frontier")
    axes.margins(x=0.16, y=0.1)
    drawing.numbers()
    return drawing


def lines(title, x, y, series, colours, log_x=False, log_y=False, dashed=(), markers=True, names=None):
    """Lines {name: [(x, value) or (x, value, low, high)]}; `names` maps a line to whose colour it takes."""
    drawing = Drawing(title, 460, 320, x, y, log_x, log_y)
    for i, (name, points) in enumerate(series.items()):
        points = [p for p in points if not log_y or p[1] > 0]
        if not points:
            continue
        colour, style = colours[(names or {}).get(name, name)], "--" if name in dashed else "-"
        marker = "os^Dv"[i % 5] if markers and name not in dashed else None
        if len(points[0]) == 4:
            drawing.axes.errorbar([p[0] for p in points], [p[1] for p in points], yerr=_bars_to(points), color=colour,
                                  linestyle=style, marker=marker, capsize=2, label=name)
        else:
            drawing.axes.plot(*zip(*points), color=colour, linestyle=style, marker=marker, label=name)
    if series:
        drawing.axes.legend(loc="best")
    drawing.numbers()
    return drawing


def cloud(title, x, y, series, colours):
    """Clouds of points {name: (label, [(x, y)])}, in panels that share one scale; the first is in each."""
    drawing = Drawing(title, 230 * max(1, len(series) - 1), 280)
    drawing.axes.remove()
    (base, first), *others = series.items()
    panels = drawing.figure.subplots(1, max(1, len(others)), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, (label, points)) in zip(panels, others or [(base, first)]):
        axes.scatter(*zip(*first[1]), s=5, color=_INK, alpha=0.35, linewidths=0)
        axes.scatter(*zip(*points), s=5, color=colours[name], alpha=0.7, linewidths=0)
        axes.set_title(label, fontsize=9)
        axes.set_xlabel(x, fontsize=9)
    panels[0].set_ylabel(y, fontsize=9)
    return drawing


def bars(title, unit, rows, parts=None, colours=None, centred=False):
    """A bar for each row {name: value or [values of the parts]}; `centred`: around a middle line (spindles)."""
    drawing = Drawing(title, 460 if centred else 560, 70 + 22 * len(rows) + (40 if parts else 0), unit)
    names = list(rows)
    values = numpy.array([numpy.atleast_1d(rows[name]) for name in names], dtype=float)
    left = -values[:, 0] / 2 if centred else numpy.zeros(len(names))
    for i in range(values.shape[1]):
        colour = _PART_COLOURS[i % 8] if parts else [colours[name] for name in names]
        drawing.axes.barh(names, values[:, i], left=left, color=colour, height=0.66, label=parts[i] if parts else None)
        left = left + values[:, i]
    if not parts:
        for row, value in enumerate(values[:, 0]):
            drawing.axes.annotate(f" {value:.4g}", (left[row], row), va="center", fontsize=8.5)
        drawing.axes.margins(x=0.15)
    else:
        drawing.figure.legend(loc="outside lower center", ncols=len(parts), fontsize=8.5)
    drawing.axes.invert_yaxis()
    drawing.axes.grid(axis="y", visible=False)
    if centred:
        drawing.axes.set_xticks([])
    else:
        _ticks(drawing.axes.xaxis, False)
    return drawing


def intervals(title, x, rows, colours, mark=None, log_x=False):
    """Values with intervals {name: (value, low, high)} and a dashed line at `mark`."""
    drawing = Drawing(title, 460, 70 + 24 * len(rows), x, log_x=log_x)
    for i, (name, (value, low, high)) in enumerate(rows.items()):
        drawing.axes.errorbar(value, i, xerr=[[max(0, value - low)], [max(0, high - value)]], fmt="o",
                              color=colours[name], capsize=3)
    drawing.axes.set_yticks(range(len(rows)), list(rows))
    drawing.axes.set_ylim(len(rows) - 0.5, -0.5)
    if mark is not None:
        drawing.axes.axvline(mark, color=_INK, linestyle="--", linewidth=1)
    _ticks(drawing.axes.xaxis, log_x)
    return drawing


def heat(title, x, rows, columns, cells, log=True, numbers=True, cell=(46, 24)):
    """A map [rows][columns], darker for larger values; None stays empty."""
    grid = numpy.ma.masked_invalid(numpy.array(cells, dtype=float))
    drawing = Drawing(title, 150 + cell[0] * len(columns), 70 + cell[1] * len(rows), x)
    norm = LogNorm() if log and grid.count() and grid.min() > 0 else Normalize()
    shades = norm(grid)
    drawing.axes.imshow(grid, cmap=_HEAT, norm=norm, aspect="auto", interpolation="nearest")
    step = max(1, len(columns) * 22 // max(1, cell[0] * len(columns)))
    drawing.axes.set_xticks(range(0, len(columns), step), list(columns)[::step])
    every = max(1, 12 // cell[1] + (12 % cell[1] > 0)) if cell[1] < 12 else 1
    drawing.axes.set_yticks(range(0, len(rows), every), list(rows)[::every], fontsize=8.5)
    drawing.axes.grid(visible=False)
    for row in range(len(rows) if numbers else 0):
        for column in range(len(columns)):
            if not numpy.ma.is_masked(grid[row, column]):
                drawing.axes.annotate(f"{grid[row, column]:.2g}", (column, row), ha="center", va="center", fontsize=7.5,
                                      color="white" if shades[row, column] > 0.5 else "black")
    return drawing


def radar(title, names, series, colours):
    """Polygons {name: values from 0 (centre) to 1 (rim)} over axes."""
    drawing = Drawing(title, 520, 400, projection="polar")
    angles = numpy.linspace(0, 2 * numpy.pi, len(names), endpoint=False)
    for name, values in series.items():
        drawing.axes.plot([*angles, angles[0]], [*values, values[0]], color=colours[name], label=name, marker="o", markersize=3)
    drawing.axes.set_xticks(angles, names)
    drawing.axes.tick_params(pad=14)
    drawing.axes.set_yticks([0.25, 0.5, 0.75, 1], [])
    drawing.axes.set_ylim(0, 1)
    drawing.figure.legend(loc="outside right upper")
    return drawing
