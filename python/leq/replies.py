"""What a generation gives."""

from dataclasses import dataclass, field
from typing import Optional

_STOPS = ("none", "end_token", "stop_string", "token_limit", "context_full", "interrupted",
          "failed")
_FINISH = {"token_limit": "length", "context_full": "length", "interrupted": "interrupted"}


@dataclass(frozen=True)
class Piece:
    """What a step added to a reply: whole characters, and the tokens behind them."""

    text: str
    tokens: list
    offset: int = 0  # of the text in the reply, in bytes of UTF-8
    logprobs: list = field(default_factory=list)  # one a token, where they were asked for


@dataclass(frozen=True)
class ReceiptDifference:
    """Where a reply that was generated again leaves its receipt."""

    place: int  # of the first token that differs
    logits: bool  # not the token differs, but the logits before it
    found: int  # -1: the reply ends there
    expected: int


@dataclass(frozen=True)
class Reply:
    """A finished reply."""

    text: str
    tokens: list  # without the end token
    stop: str  # "end_token", "stop_string", "token_limit", "context_full" or "interrupted"
    stop_string: str
    seed: int
    prompt_tokens: int
    cached_tokens: int  # of the prompt, which were in the cache
    prompt_seconds: float
    reply_seconds: float
    logprobs: list = field(default_factory=list)  # one a token; one more for an end token
    top_logprobs: list = field(default_factory=list)  # of each place {id: logprob}
    receipt: Optional[str] = None  # JSON

    @property
    def finish_reason(self):
        """"stop", "length" or "interrupted", as OpenAI has it."""
        return _FINISH.get(self.stop, "stop")

    def __str__(self):
        return self.text


def reply_of(native, prompt_tokens):
    return Reply(text=native["text"].decode("utf-8", "replace"), tokens=native["tokens"],
                 stop=_STOPS[native["stop"]], stop_string=native["stop_string"],
                 seed=native["seed"] - (native["seed"] >> 63 << 64),  # signed, as it is given
                 prompt_tokens=prompt_tokens,
                 cached_tokens=native["cached_tokens"], prompt_seconds=native["prompt_seconds"],
                 reply_seconds=native["reply_seconds"], logprobs=native.get("logprobs", []),
                 top_logprobs=native.get("top_logprobs", []), receipt=native["receipt"])
