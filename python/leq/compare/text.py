"""Windows of a text, and what a model says of them: perplexity, KL divergence, multiple choice.

Protocols, formulas and forms of questions are those of leq-perplexity (docs/perplexity.md)."""

import hashlib
import json
import re
from dataclasses import dataclass, replace

import numpy

from ..errors import FileError, InputError, SettingError
from .statistics import share_interval

_MEANINGS = {"hf": "side by side, each scored from its second token on",
             "hf-stride": "overlapping, each token scored once",
             "llamacpp-512": "side by side, BOS first where the model has one, the second half scored"}
PROTOCOLS = tuple(_MEANINGS)


def read_text(path):
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    if not raw:
        raise InputError(f"{path}: the file is empty; a text to measure is needed")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: invalid UTF-8 at offset {error.start}; convert the file to UTF-8") from None


def join_rows(text):
    """The rows of Hugging Face's data set: blank lines become empty rows, joined by two newlines."""
    return "\n\n".join(row if row.strip() else "" for row in re.findall(r"[^\n]*\n|[^\n]+$", text))


@dataclass(frozen=True)
class Windows:
    """Settings of a protocol, and its windows [(first, count, scored_from)] of `tokens`."""

    protocol: str
    join: str
    window: int
    stride: int
    tokens: list
    windows: list
    bos: int | None = None

    @property
    def scored(self):
        return sum(first + count - scored for first, count, scored in self.windows)

    def describe(self):
        every = f" every {self.stride}" if self.protocol == "hf-stride" else ""
        rows = "rows joined by two newlines (join hf)" if self.join == "hf" else "the text as it is (join none)"
        return f"{self.protocol}: windows of {self.window} tokens{every}, {_MEANINGS[self.protocol]}; {rows}"

    def short(self, window, chunks):
        """The first windows of another length, side by side."""
        window = min(window, len(self.tokens))
        return replace(self, protocol="hf", window=window, stride=window, bos=None,
                       windows=_plan("hf", window, window, chunks, len(self.tokens)))


def _plan(protocol, window, stride, chunks, tokens):
    windows, first, scored_to = [], 0, 0
    while scored_to < tokens and not (chunks and len(windows) == chunks):
        end = min(first + window, tokens)
        if protocol != "hf-stride" and end - first < window:
            break
        scored_from = first + window // 2 + 1 if protocol == "llamacpp-512" else max(first + 1, scored_to)
        if scored_from < end:
            windows.append((first, end - first, scored_from))
        scored_to = end
        first += stride
    return windows


_WIKITEXT = "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"  # of wiki.test.raw


def resolve(text, protocol, join, window, context):
    """The join and the window of a protocol for a model of `context` positions, checked. Only the lines of wiki.test.raw
    are known to be rows of a data set."""
    if protocol == "llamacpp-512":
        if join == "hf":
            raise SettingError("--join hf: protocol llamacpp-512 takes the file as it is; leave --join out")
        if window not in (None, 512):
            raise SettingError(f"--window {window}: protocol llamacpp-512 has windows of 512; leave --window out")
        if context < 512:
            raise SettingError(f"--protocol llamacpp-512: needs windows of 512, the model has a context of {context}")
        return "none", 512
    window = window or min(context, 2048)
    if not 2 <= window <= context:
        raise SettingError(f"--window {window}: expected 2 to the model's context of {context}")
    return join or ("hf" if hash_of(text) == _WIKITEXT else "none"), window


def windows_of(text, source, protocol, join, window, chunks, tokenizer, context):
    join, window = resolve(text, protocol, join, window, context)
    tokens = tokenizer.encode(join_rows(text) if join == "hf" else text)
    stride = (window // 2 if window < 1024 else 512) if protocol == "hf-stride" else window
    if len(tokens) < window:
        raise InputError(f"{source} has {len(tokens)} tokens, one window has {window}; take a longer text or a "
                         "smaller --window")
    bos = tokenizer.bos if protocol == "llamacpp-512" and tokenizer.adds_bos else None
    windows = _plan(protocol, window, stride, chunks, len(tokens))
    if len(windows) < 2:
        raise InputError(f"{source}: one window is too little to tell candidates apart; give more text, or a "
                         "smaller --window")
    return Windows(protocol, join, window, stride, tokens, windows, bos)


def scored_logits(model, tokens, scored_from):
    """float32 [scored, V]: row i predicts tokens[scored_from + i]."""
    model.rewind(0)
    if scored_from > 1:
        model.feed(tokens[:scored_from - 1])
    return model.feed(tokens[scored_from - 1:-1], all=True)


def each_window(model, windows):
    """Yields (logits [scored, V], targets) of each window."""
    for first, count, scored_from in windows.windows:
        tokens = windows.tokens[first:first + count]
        targets = tokens[scored_from - first:]
        if windows.bos is not None:
            tokens = [windows.bos, *tokens[1:]]
        yield scored_logits(model, tokens, scored_from - first), targets


def _log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


def compare_rows(base, logits, targets):
    """Columns [rows] of kl, nll, nll_base (nats), same_top and delta_p of logits against a base's."""
    parts = []
    for i in range(0, len(targets), 64):  # bounds the memory in double
        some = numpy.arange(len(targets[i:i + 64]))
        p, q = _log_softmax(base[i:i + 64]), _log_softmax(logits[i:i + 64])
        at = numpy.asarray(targets[i:i + 64])
        kl = numpy.maximum((numpy.exp(p) * (p - q)).sum(axis=1), 0)
        same = (base[i:i + 64].argmax(axis=1) == logits[i:i + 64].argmax(axis=1)).astype(float)
        parts.append(numpy.stack([kl, -q[some, at], -p[some, at], same]))
    kl, nll, nll_base, same = numpy.concatenate(parts, axis=1)
    return {"kl": kl, "nll": nll, "nll_base": nll_base, "same_top": same,
            "delta_p": numpy.exp(-nll) - numpy.exp(-nll_base)}


def _clustered(values):
    """(mean, standard error) of all values of windows; the error over the sums of windows."""
    every = numpy.concatenate(values)
    mean = every.mean()
    parts = [(one - mean).sum() for one in values] if len(values) > 1 else every - mean
    count = len(parts)
    error = numpy.sqrt(count / (count - 1) * numpy.square(parts).sum()) / len(every) if count > 1 else 0.0
    return float(mean), float(error)


def quality(windows, rows):
    """Perplexity and divergence of the rows of windows, under leq-perplexity's names."""
    nll = [one["nll"] for one in rows]
    kl = numpy.concatenate([one["kl"] for one in rows])
    units = [one.mean() for one in nll] if windows.protocol == "hf" else numpy.concatenate(nll)
    mean = float(numpy.mean(units))
    spread = units if len(units) > 1 else numpy.concatenate(nll)
    error = float(numpy.std(spread, ddof=1) / numpy.sqrt(len(spread))) if len(spread) > 1 else 0.0
    ppl = float(numpy.exp(mean))
    base = [one["nll_base"] for one in rows]
    base_units = [one.mean() for one in base] if windows.protocol == "hf" else numpy.concatenate(base)
    found = {"ppl": ppl, "nll": mean, "stderr": ppl * error, "windows": len(rows), "scored": len(kl),
             "window_nll": [float(one.mean()) for one in nll],
             "window_kl": [float(one["kl"].mean()) for one in rows],
             "kl_median": float(numpy.median(kl)), "kl_p99": float(numpy.quantile(kl, 0.99)),
             "kl_p999": float(numpy.quantile(kl, 0.999)),
             "ppl_base": float(numpy.exp(numpy.mean(base_units)))}
    for name, key in (("kl_mean", "kl"), ("same_top1", "same_top"), ("delta_p_mean", "delta_p")):
        found[name], found[name + "_stderr"] = _clustered([one[key] for one in rows])
    return found


# ---- Multiple choice ----

@dataclass(frozen=True)
class Question:
    context: str
    choices: list
    answer: int

    def __post_init__(self):
        for one in (self.context, *self.choices):
            if not isinstance(one, str):
                raise ValueError(f"expected a text, found {one!r}")
            one.encode()  # raises a ValueError


def _clean(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[[^]]*\]", "", text).replace("  ", " ")


def _texts(found, key):
    if not isinstance(found, list) or len(found) < 2 or not all(isinstance(one, str) and one for one in found):
        raise ValueError(f"{key}: expected two texts or more that are not empty")
    return found


def _answer(line, key, choices):
    label = line[key]
    if isinstance(label, str):
        letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZ".find(label) if len(label) == 1 else -1
        label = letter if letter >= 0 else int(label) if label.isdecimal() else None
    if type(label) is not int or not 0 <= label < choices:
        raise ValueError(f"{key}: expected one of {choices} choices, found {line[key]!r}")
    return label


def _hellaswag(line):
    endings = [_clean(one) for one in _texts(line["endings"], "endings")]
    context = f"{line['activity_label']}: {line['ctx_a']} {line['ctx_b'].capitalize()}"
    return Question(_clean(context), endings, _answer(line, "label", len(endings)))


def _piqa(line):
    return Question(f"Question: {line['goal']}\nAnswer:", [line["sol1"], line["sol2"]], _answer(line, "label", 2))


def _arc(line):
    nested = isinstance(line["question"], dict)
    choices = line["question"]["choices"] if nested else line["choices"]
    texts = [one["text"] for one in choices] if nested else choices["text"]
    labels = [one["label"] for one in choices] if nested else choices["label"]
    stem = line["question"]["stem"] if nested else line["question"]
    if line["answerKey"] not in labels:
        raise ValueError(f"answerKey {line['answerKey']}: expected one of {', '.join(labels)}")
    return Question(f"Question: {stem}\nAnswer:", _texts(texts, "choices"), labels.index(line["answerKey"]))


def _mmlu(line):
    texts = _texts(line["choices"], "choices")
    subject = line.get("subject", "").replace("_", " ")
    head = f"The following are multiple choice questions (with answers) about {subject}.\n\n" if subject else ""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:len(texts)]
    lines = "".join(f"\n{letter}. {text}" for letter, text in zip(letters, texts))
    return Question(f"{head}{line['question'].strip()}{lines}\nAnswer:", list(letters),
                    _answer(line, "answer", len(texts)))


def _plain(line):
    return Question(line["context"], _texts(line["choices"], "choices"), _answer(line, "label", len(line["choices"])))


_FORMS = ((("endings", "ctx_a", "activity_label"), _hellaswag), (("goal", "sol1", "sol2"), _piqa),
          (("question", "answerKey"), _arc), (("question", "choices", "answer"), _mmlu),
          (("context", "choices", "label"), _plain))


def read_questions(path, limit=0):
    """The first `limit` questions of a JSONL file; 0: all."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    questions = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            read = next((read for keys, read in _FORMS if isinstance(line, dict) and all(key in line for key in keys)),
                        None)
            if read is None:
                raise ValueError("no form of a question: expected the keys of HellaSwag (endings), PIQA (goal), ARC "
                                 "(answerKey), MMLU (answer), or context, choices and label")
            questions.append(read(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
            raise InputError(f"{path}: line {number}: {what}") from None
        if len(questions) == limit:
            break
    if not questions:
        raise InputError(f"{path}: no questions")
    return questions


def choice_tokens(tokenizer, context, choice, most):
    """(tokens, index of the first that is scored) of a choice after its context, cut to `most` from the left."""
    stem = context.rstrip(" \t\n\r\f\v")
    rest = context[len(stem):] + " " + choice
    if stem:
        before, tokens = len(tokenizer.encode(stem)), tokenizer.encode(stem + rest)
    else:
        first = tokenizer.bos if tokenizer.bos >= 0 else tokenizer.eos
        before, tokens = 1, [first, *tokenizer.encode(rest, add_special_tokens=False)]
    cut = max(0, len(tokens) - most)
    if before >= len(tokens) or before - cut < 1:
        raise InputError(f"choice {choice!r}: no token of its own, or more than a context of {most}")
    return tokens[cut:], before - cut


def measure_choices(model, questions, most):
    """Shares of right answers by log-likelihood (acc) and by log-likelihood for each character (acc_norm)."""
    right = right_norm = 0
    for question in questions:
        sums = []
        for choice in question.choices:
            tokens, scored_from = choice_tokens(model.tokenizer, question.context, choice, most)
            rows = _log_softmax(scored_logits(model, tokens, scored_from))
            sums.append(float(rows[numpy.arange(len(rows)), tokens[scored_from:]].sum()))
        lengths = [len(choice) for choice in question.choices]
        right += int(numpy.argmax(sums)) == question.answer
        right_norm += int(numpy.argmax(numpy.divide(sums, lengths))) == question.answer
    found = {"questions": len(questions)}
    for key, count in (("acc", right), ("acc_norm", right_norm)):
        share = share_interval(count, len(questions))
        found |= {key: share.value, key + "_low": share.low, key + "_high": share.high}
    return found


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()
