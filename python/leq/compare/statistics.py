"""Intervals and paired tests over the windows of a text."""

from dataclasses import dataclass
from itertools import combinations

import numpy
from scipy import stats

SIGNIFICANCE = 0.05
FEW = 30  # windows; below, intervals are Student's
NOISY = 0.10  # range of a speed's runs, as a share of their median, above which it tells nothing


@dataclass(frozen=True)
class Interval:
    """An estimate with the 95 % interval of the same statistic."""

    value: float
    low: float
    high: float


def mean_interval(values):
    """The mean: Student's t interval for fewer than FEW values, otherwise a BCa bootstrap."""
    values = numpy.asarray(values, dtype=float)
    mean = float(values.mean())
    if len(values) < 2 or numpy.ptp(values) == 0:
        return Interval(mean, mean, mean)
    if len(values) < FEW:
        low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=stats.sem(values))
    else:
        low, high = stats.bootstrap((values,), numpy.mean, n_resamples=9999, method="BCa",
                                    rng=numpy.random.default_rng(1)).confidence_interval
    return Interval(mean, float(low), float(high))


def median_interval(values):
    """The median, with a percentile bootstrap of the median."""
    values = numpy.asarray(values, dtype=float)
    found = stats.bootstrap((values,), numpy.median, n_resamples=9999, method="percentile",
                            rng=numpy.random.default_rng(1)).confidence_interval
    return Interval(float(numpy.median(values)), float(found.low), float(found.high))


def share_interval(successes, trials):
    """A share of trials, with Wilson's interval."""
    found = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    return Interval(successes / trials, float(found.low), float(found.high))


@dataclass(frozen=True)
class Paired:
    """A paired t-test of first - second; `low` and `high` are of the level that was asked for."""

    mean: float
    low: float
    high: float
    t: float
    p: float
    effect: float  # Cohen's d of the differences
    pairs: int


def paired(first, second, level=0.95):
    differences = numpy.asarray(first, dtype=float) - numpy.asarray(second, dtype=float)
    mean, count = float(differences.mean()), len(differences)
    if count < 2 or numpy.ptp(differences) == 0:
        same = count < 2 or mean == 0
        return Paired(mean, mean, mean, 0.0, 1.0 if same else 0.0, 0.0, count)
    test = stats.ttest_1samp(differences, 0)
    bounds = test.confidence_interval(level)
    return Paired(mean, float(bounds.low), float(bounds.high), float(test.statistic), float(test.pvalue),
                  mean / float(differences.std(ddof=1)), count)


@dataclass(frozen=True)
class Outcome:
    """Two methods on the same windows. A corrected interval without 0 and a verdict go together."""

    first: str
    second: str
    test: Paired
    corrected: float  # p after Bonferroni's correction over all pairs
    verdict: str  # of the first, whose number is to be low: "better", "worse", "no difference shown"

    def turned(self):
        test = self.test
        verdict = {"better": "worse", "worse": "better"}.get(self.verdict, self.verdict)
        return Outcome(self.second, self.first,
                       Paired(-test.mean, -test.high, -test.low, -test.t, test.p, -test.effect, test.pairs),
                       self.corrected, verdict)


def all_pairs(lists):
    """The Outcome of each pair of a dict of lists, by (first, second) in both directions."""
    pairs = list(combinations(lists, 2))
    outcomes = {}
    for first, second in pairs:
        test = paired(lists[first], lists[second], 1 - SIGNIFICANCE / len(pairs))
        corrected = min(1.0, test.p * len(pairs))
        verdict = ("no difference shown" if corrected >= SIGNIFICANCE
                   else "better" if test.mean < 0 else "worse")
        outcomes[first, second] = Outcome(first, second, test, corrected, verdict)
        outcomes[second, first] = outcomes[first, second].turned()
    return outcomes


def is_noisy(speed):
    """Whether the runs of a speed {"tps", "min", "max"} differ so much that other programs had the cores."""
    return (speed["max"] - speed["min"]) > NOISY * speed["tps"]
