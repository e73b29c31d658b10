"""A model: replies, chats, embeddings, logits and measurements."""

import json
import os
import warnings
from dataclasses import dataclass

import numpy

from . import _leq, errors
from .replies import Piece, ReceiptDifference, reply_of
from .streams import Stream
from .tokenizer import TEXTS, Tokenizer, json_bytes, path_bytes, text_bytes, token_list

_LOAD = {"auto": 0, "map": 1, "read": 2}
_LAST, _ALL, _NONE = 0, 1, 2
_KINDS = {int: "a whole number", float: "a number", bool: "True or False", type(None): "a text"}


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-likelihood, in nats, with its standard error."""

    ppl: float
    nll: float
    stderr: float
    windows: int
    scored: int  # tokens
    tokens: int  # of the whole text


@dataclass(frozen=True)
class Divergence:
    """KL divergence from a base model, in nats."""

    kl_mean: float
    kl_mean_stderr: float
    kl_median: float
    kl_p99: float
    same_top1: float  # share of positions, 0 to 1
    same_top1_stderr: float
    ppl: float
    ppl_base: float
    windows: int
    scored: int


def _session_settings(speculate, **options):
    settings = _leq.SessionSettings()
    if isinstance(speculate, bool):
        speculate = "auto" if speculate else "off"
    _set_all(settings, {"speculate": speculate, **options}, "a model")
    return settings


class _Opened:
    """The native model, until it is closed; called by what uses it."""

    def __init__(self, native, path):
        self.native, self.path, self.pid = native, path, os.getpid()

    def __call__(self):
        if self.native is None:
            raise errors.UsageError(f"{self.path}: the model was closed")
        if os.getpid() != self.pid:
            raise errors.UsageError(f"{self.path}: was opened before fork(); open it in this process")
        return self.native


class Model:
    """A model, ready to run.

    path        a .leq file or its bytes; or a GGUF file, which is converted with its own numbers
    context     positions in all sequences together; 0: min(the model's, 8192) for each of them
    sequences   replies written at once; more prompts than that wait for each other
    threads     0: one for each usable core
    key_type, value_type  of the KV cache: "f32", "f16", "int8", ...; None: as the file was made for
    device      None: the CPU
    speculate   what guesses tokens, which change no reply but its time: "ngram" (what followed the same text
                earlier), "mtp" (the model's head of multi-token prediction), "auto" or True (both), "off" or
                False
    load        "map" the file, "read" it into huge pages, or "auto"
    cache       the folder for conversions of GGUF files; None: that of the tools, ~/.cache/leq; "": they
                are kept in memory
    progress    called with (work, done, total) during a conversion
    logit_rows  rows that logits() gets in one step: more is faster and takes memory
    pooling     how embed() makes one vector of a text: "mean", "last" (token), "cls" (the first one) or
                "none" (a vector per token); None: as the model's file says, otherwise the mean

    Several models may be open at once, each with its threads. A model may be used by several threads;
    its replies share batches then. Raises leq.Error."""

    def __init__(self, path, *, context=0, sequences=1, threads=0, key_type=None, value_type=None,
                 device=None, speculate=True, load="auto", logit_rows=64, cache=None,
                 progress=None, pooling=None):
        if load not in _LOAD:
            raise errors.about(errors.SettingError, "load", f" {load!r}: expected auto, map or read")
        content = bytes(path) if isinstance(path, (bytes, bytearray, memoryview)) else None
        name = b"(memory)" if content is not None else path_bytes(path)
        self.path = "(memory)" if content is not None else os.fspath(path)
        native = _leq.Model(name, content, _LOAD[load],
                            cache=None if cache is None else path_bytes(cache), progress=progress)
        self._opened = _Opened(native, self.path)
        self.info = native.info()
        if context == 0:
            context = min(self.info["context"], 8192) * max(1, errors.whole("sequences", sequences))
        self._session = _leq.Session(native, _session_settings(
            speculate, context=context, sequences=sequences, threads=threads, key_type=key_type,
            value_type=value_type, device=device, logit_rows=logit_rows, pooling=pooling))
        self._pooling = pooling or self.info["pooling"]
        self._threads, self._device = threads, device
        self._kv = key_type, value_type
        self.tokenizer = Tokenizer(self._opened)

    @classmethod
    def from_pretrained(cls, repo, *, type=None, recipe=None, revision=None, cache_dir=None,
                        **options):
        """Fetches a checkpoint from the Hugging Face hub and quantizes it once.

        Nothing else in leq fetches anything. Needs huggingface_hub, the extra hub."""
        from . import hub
        return cls(hub.fetch(repo, type, recipe, revision, cache_dir), **options)

    # ---- Replies ----

    def generate(self, prompt, *, max_tokens=None, grammar=None, schema=None, logprobs=0,
                 receipt=False, cancel=None, **settings):
        """A Reply to a prompt, or a list of them to a list of prompts, in their order.

        A prompt is a text or a list of ids. Several are written together, each as if it were alone.

        max_tokens  None, 0 or -1: until the model ends or the context is full
        grammar     GBNF; schema: a JSON schema, as a dict or text
        logprobs    n: of each token, and of the n most probable ones in its place
        receipt     True: reply.receipt, JSON that check_receipt() verifies (docs/receipts.md)
        cancel      a leq.Cancel; the reply ends as "interrupted"
        settings    temperature, top_k, top_p, min_p, seed, stop, logit_bias, ignore_eos and the rest of
                    docs/sampling.md; what is left out is as the model has it

        Ctrl-C ends it before its next token."""
        many = _is_several(prompt)
        prompts = [self._tokens(one) for one in (prompt if many else [prompt])]
        if cancel is not None and not isinstance(cancel, _leq.Cancel):
            raise errors.about(errors.WrongTypeError, "cancel", f": expected a leq.Cancel, found {cancel!r}")
        if not prompts:
            return []
        found = self._opened_session().generate(
            prompts, _settings_json(settings), _most(max_tokens),
            errors.whole("logprobs", logprobs, 32), bool(receipt),
            _grammar(grammar, schema), cancel, None)
        replies = [reply_of(one, len(ids)) for one, ids in zip(found, prompts)]
        return replies if many else replies[0]

    __call__ = generate

    def stream(self, prompt, *, max_tokens=None, grammar=None, schema=None, logprobs=0, **settings):
        """An iterator of Piece. Closing it cancels the reply; `.reply` has it whole in the end."""
        tokens = self._tokens(prompt)
        session, rules = self._opened_session(), _grammar(grammar, schema)
        given, most = _settings_json(settings), _most(max_tokens)
        logprobs = errors.whole("logprobs", logprobs, 32)

        def work(put, cancel):
            waiting, sums, offset = [], [], 0  # of tokens that are no whole characters yet

            def on_piece(_, text, new, logs):
                nonlocal offset
                waiting.extend(new)
                sums.extend(logs)
                if text:
                    put(Piece(text.decode("utf-8", "replace"), waiting[:], offset, sums[:]))
                    offset += len(text)
                    waiting.clear()
                    sums.clear()
                return False
            [reply] = session.generate([tokens], given, most, logprobs, False, rules, cancel,
                                       on_piece)
            return reply_of(reply, len(tokens))

        return Stream(work)

    def check_receipt(self, receipt):
        """None where this model, generating the receipt's reply again, comes to the same tokens and
        logits; else a ReceiptDifference. What was fed is forgotten."""
        found = self._opened_session().check_receipt(text_bytes(receipt, "receipt"))
        return None if found.pop("same") else ReceiptDifference(**found)

    def create_chat_completion(self, messages, *, stream=False, **request):
        """As OpenAI's: a dict of "object": "chat.completion", or an iterator of its chunks.

        tools, tool_choice, response_format, logprobs, n, stop, temperature ... as docs/server.md
        has them."""
        return self._respond("chat", {"messages": list(messages), **request}, stream)

    def create_completion(self, prompt, *, stream=False, **request):
        """As OpenAI's: a dict of "object": "text_completion", or an iterator of its chunks."""
        return self._respond("text", {"prompt": prompt, **request}, stream)

    def _respond(self, form, request, stream, cancel=None):
        body = json_bytes({**request, "stream": bool(stream)})
        session = self._opened_session()
        if not stream:
            return json.loads(session.respond(form, body, cancel))

        def work(put, cancel):
            def on_event(event):
                put(json.loads(event))
                return False
            session.respond(form, body, cancel, on_event)

        return Stream(work)

    # ---- Numbers ----

    def embed(self, text, *, normalize=None, dimensions=None):
        """float32 [W] of a text, or [texts, W] of a list of them: the pooled last hidden states. With the
        pooling "none" it is [tokens, W], or a list of these.

        A text ends with the token that the model's embeddings need; ids are taken as they are.

        normalize   scaled to a length of 1; None: as the model's file says, otherwise True
        dimensions  only the first numbers, scaled after that"""
        if normalize is None:
            normalize = self.info["normalizes"] and self._pooling != "none"
        if self._pooling is None:
            warnings.warn(f"{self.path} does not say how its embeddings are pooled: mean is used, which is "
                          "wrong for many models; Model(pooling=...) sets it", stacklevel=2)
        if not _is_several(text):
            return self._embed(text, normalize, dimensions)
        rows = [self._embed(one, normalize, dimensions) for one in text]
        if self._pooling == "none":
            return rows
        return numpy.array(rows, numpy.float32).reshape(len(rows), dimensions or self.info["width"])

    def _embedding_tokens(self, text):
        ends = self.info["embedding_end"] >= 0 and isinstance(text, TEXTS)
        return self._tokens(text) + ([self.info["embedding_end"]] if ends else [])

    def _embed(self, text, normalize, dimensions):
        tokens, width = self._embedding_tokens(text), self.info["width"]
        if dimensions is not None and not 1 <= dimensions <= width:
            raise errors.SettingError(f"dimensions {dimensions}: expected 1 to {width}")
        rows = len(tokens) if self._pooling == "none" else 1
        found = self._opened_session().embed(tokens, width, rows).reshape(rows, width)[:, :dimensions]
        if normalize:
            lengths = numpy.sqrt(numpy.sum(found.astype(numpy.float64) ** 2, axis=1, keepdims=True))
            found = found / numpy.where(lengths > 0, lengths, 1).astype(numpy.float32)
        return found if self._pooling == "none" else found[0]

    def create_embedding(self, input):
        """As OpenAI's: a dict of "object": "list"."""
        texts = [input] if isinstance(input, TEXTS) else list(input)
        count = sum(len(self._embedding_tokens(text)) for text in texts)
        data = [{"object": "embedding", "index": i, "embedding": self.embed(text).tolist()}
                for i, text in enumerate(texts)]
        return {"object": "list", "data": data, "model": os.path.basename(self.path),
                "usage": {"prompt_tokens": count, "total_tokens": count}}

    def logits(self, prompt):
        """float32 [tokens, V]: row i predicts the token after tokens[:i + 1]. No copy is made, and
        the array stays what it is."""
        self.rewind(0)
        return self.feed(self._tokens(prompt), all=True)

    def feed(self, tokens, *, all=False):
        """Appends tokens to what was fed; float32 [V] of the last one, or [tokens, V] of all.

        generate() and feed() share one KV cache: each discards the positions that
        the other has fed."""
        rows = self._opened_session().feed(token_list(tokens, "tokens"), _ALL if all else _LAST)
        return rows if all else rows[0]

    def embed_tokens(self, tokens):
        """float32 [T, W]: the hidden states that enter the first layer. With run_layer() and run_head(), a
        forward pass layer by layer of a text of at most 512 tokens; what was fed is forgotten."""
        return self._opened_session().embed_tokens(self._tokens(tokens), self.info["width"])

    def run_layer(self, layer, hidden, *, inputs=False):
        """float32 [T, W]: the hidden states after a layer, of those before it; with inputs=True, also a list of
        (site, float32 [T, K]), what the weights of each site are multiplied with."""
        hidden = numpy.array(hidden, dtype=numpy.float32, order="C")
        seen = self._opened_session().run_layer(layer, hidden, inputs)
        return (hidden, seen) if inputs else hidden

    def run_head(self, hidden):
        """float32 [T, V]: the logits of hidden states after the last layer."""
        return self._opened_session().run_head(numpy.array(hidden, dtype=numpy.float32, order="C"))

    @property
    def position(self):
        """Tokens that were fed."""
        return self._opened_session().position()

    def rewind(self, position):
        """Forgets what was fed from `position` on; returns the position that is left."""
        position = errors.whole("position", position)
        if position < 0:
            raise errors.about(errors.SettingError, "position", f" {position}: expected 0 or more")
        return self._opened_session().rewind(position)

    def sample(self, row, context=(), index=0, **settings):
        """A token drawn from a row of logits [V], as generate() draws the reply's token `index`."""
        row = numpy.ascontiguousarray(row, dtype=numpy.float32)
        return self._opened().sample(row, token_list(context, "context"), index,
                                     _settings_json(settings))

    def perplexity(self, text, *, progress=None, **options):
        """A Perplexity, as leq-perplexity measures it.

        protocol ("hf", "hf-stride", "llamacpp-512"), join, window, stride, chunks."""
        return Perplexity(**_leq.perplexity(self._opened(), text_bytes(text),
                                            self._measure_settings(options), progress))

    def kl(self, base, text, *, progress=None, **options):
        """The Divergence of this model from `base`, another Model, on a text."""
        return Divergence(**_leq.divergence(base._opened(), self._opened(), text_bytes(text),
                                            self._measure_settings(options), progress))

    def _measure_settings(self, options):
        settings = _leq.MeasureSettings()
        settings.threads, settings.device = self._threads, self._device
        settings.key_type, settings.value_type = self._kv
        _set_all(settings, options, "perplexity")
        return settings

    # ---- Files and memory ----

    def save_state(self, prompt, path):
        """Keeps what was fed of a prompt in a file; returns of how many tokens."""
        return self._opened_session().save_state(self._tokens(prompt), path_bytes(path))

    def load_state(self, path):
        """Prompts that begin as the saved one need not feed it again."""
        return self._opened_session().load_state(path_bytes(path))

    def inspect(self):
        """What leq-inspect --json prints, as a dict."""
        return json.loads(self._opened().inspect())

    def verify(self):
        """Compares the checksums of all tensors; raises leq.InputError where one is damaged."""
        self._opened().verify()

    def close(self):
        """Gives the memory back. What others still write with it ends first."""
        self._session = self._opened.native = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"leq.Model({self.path!r})"

    def _opened_session(self):
        self._opened()
        return self._session

    def _tokens(self, prompt):
        if isinstance(prompt, TEXTS):
            return self.tokenizer.encode(prompt)
        return token_list(prompt)


def _is_several(prompts):
    """Whether these are texts or lists of ids, and not one of them."""
    if isinstance(prompts, TEXTS) or not hasattr(prompts, "__len__"):
        return False
    try:
        return len(prompts) == 0 or not isinstance(prompts[0], (int, numpy.integer))
    except (TypeError, LookupError):  # no list; what wants ids says so
        return False


def _most(max_tokens):
    return 0 if max_tokens is None else max(0, errors.whole("max_tokens", max_tokens))


def _settings_json(settings):
    return json_bytes(settings).decode()


def _set_all(target, options, where):
    for name, value in options.items():
        if name.startswith("_") or not hasattr(target, name):
            raise errors.about(errors.SettingError, name, f": {where} has no such setting")
        kind = _KINDS[type(getattr(target, name))]
        try:
            if isinstance(value, str) and "\0" in value:
                raise TypeError
            setattr(target, name, value)
        except TypeError:
            raise errors.about(errors.WrongTypeError, name, f" {value!r}: expected {kind}") from None


def _grammar(grammar, schema):
    if grammar is not None and schema is not None:
        raise errors.about(errors.SettingError, "grammar", " and schema: give one of the two")
    if grammar is None and schema is None:
        return None
    name = "schema" if grammar is None else "grammar"
    try:
        if grammar is not None:
            return _leq.Grammar(text_bytes(grammar, name), "gbnf")
        text = schema if isinstance(schema, TEXTS) else json_bytes(schema, name)
        return _leq.Grammar(text_bytes(text, name), "schema", True)
    except errors.Error as error:
        error.setting = name
        raise
