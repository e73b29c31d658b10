"""The model "leq" of lm-evaluation-harness: import this module, then --model leq --model_args path=model.leq.

Log-likelihoods come from logits row by row, of prompts that begin alike once; so they do not depend on
batches or on the order of requests."""

import numpy
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model

from .model import Model


def _log_softmax(rows):
    rows = rows.astype(numpy.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))


@register_model("leq")
class LeqLM(TemplateLM):
    """Options of leq.Model come through --model_args: path=..., context=4096, threads=8, key_type=int8."""

    def __init__(self, path, max_gen_toks=256, batch_size=None, max_batch_size=None, device=None,
                 **options):
        super().__init__()
        device = None if device in (None, "", "cpu") else device
        self.model = Model(path, device=device, **options)
        self.max_length = min(self.model.info["context"], int(options.get("context") or 8192))
        self.max_gen_toks = int(max_gen_toks)
        self._fed = []

    @property
    def eot_token_id(self):
        return self.model.tokenizer.eos

    @property
    def prefix_token_id(self):
        tokenizer = self.model.tokenizer
        return tokenizer.bos if tokenizer.bos >= 0 else tokenizer.eos

    @property
    def tokenizer_name(self):
        return self.model.path

    def tok_encode(self, string, add_special_tokens=None, **_):
        adds = True if add_special_tokens is None else add_special_tokens
        return self.model.tokenizer.encode(string, add_special_tokens=adds)

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.model.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt)

    def _score(self, context, continuation):
        """(sum of the continuation's log-probabilities, whether each token is the most probable); what is longer than
        the model's context is cut from the left, as the harness does it."""
        tokens = [*context, *continuation][-(self.max_length + 1):]
        first = max(1, len(tokens) - len(continuation))  # that is scored
        context, continuation, tokens = tokens[:first], tokens[first:], tokens[:-1]
        common = 0
        for common, (fed, token) in enumerate(zip(self._fed, tokens)):
            if fed != token:
                break
        left = self.model.rewind(min(common, len(context) - 1, len(self._fed)))
        self._fed = tokens[:left]
        if left < len(context) - 1:
            self.model.feed(tokens[left:len(context) - 1])
        rows = _log_softmax(self.model.feed(tokens[len(context) - 1:], all=True))
        self._fed = tokens
        picked = rows[numpy.arange(len(continuation)), continuation]
        return float(picked.sum()), bool((rows.argmax(axis=1) == continuation).all())

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **_):
        # Prompts that begin alike stand side by side.
        order = sorted(range(len(requests)), key=lambda i: requests[i][1] + requests[i][2])
        found = [None] * len(requests)
        for i in order:
            names, context, continuation = requests[i]
            found[i] = self._score(context, continuation)
            self.cache_hook.add_partial("loglikelihood", names, found[i])
        return found

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        """The log-likelihood of whole texts, in windows side by side."""
        sums = []
        for request in requests:
            (text,) = request.args
            tokens = self.tok_encode(text, add_special_tokens=False)
            total = 0.0
            step = self.max_length - 1
            for first in range(0, len(tokens), step):
                before = self.prefix_token_id if first == 0 else tokens[first - 1]
                total += self._score([before], tokens[first:first + step])[0]
            sums.append(total)
        return sums

    def generate_until(self, requests, disable_tqdm=False):
        self._fed = []
        texts = []
        for request in requests:
            prompt, options = request.args
            options = dict(options)
            stop = options.pop("until", [])
            stop = [stop] if isinstance(stop, str) else list(stop)
            most = min(int(options.pop("max_gen_toks", self.max_gen_toks)), self.max_length - 1)
            greedy = not options.pop("do_sample", False)
            temperature = 0 if greedy else options.pop("temperature", 1.0)
            options.pop("temperature", None)
            tokens = self.tok_encode(prompt)[-(self.max_length - most):]
            reply = self.model.generate(tokens, max_tokens=most, stop=stop, temperature=temperature,
                                        **options)
            texts.append(reply.text)
            self.cache_hook.add_partial("generate_until", request.args, reply.text)
        return texts
