from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Generic, Literal, TypeVar, overload

import numpy
from numpy.typing import NDArray

from .errors import (
    ContextFullError as ContextFullError,
    DeviceError as DeviceError,
    Error as Error,
    FileError as FileError,
    InputError as InputError,
    InternalError as InternalError,
    InterruptedError as InterruptedError,
    OutOfMemoryError as OutOfMemoryError,
    SettingError as SettingError,
    UsageError as UsageError,
)

__version__: str

_Path = str | PathLike[str]
_Prompt = str | bytes | Sequence[int]
_Progress = Callable[[str, int, int], object]
_T = TypeVar("_T")

class Cancel:
    def request(self) -> None: ...
    def reset(self) -> None: ...

@dataclass(frozen=True)
class Piece:
    text: str
    tokens: list[int]

@dataclass(frozen=True)
class Reply:
    text: str
    tokens: list[int]
    stop: str
    stop_string: str
    seed: int
    prompt_tokens: int
    cached_tokens: int
    prompt_seconds: float
    reply_seconds: float
    logprobs: list[float] = ...
    top_logprobs: list[dict[int, float]] = ...
    @property
    def finish_reason(self) -> str: ...

@dataclass(frozen=True)
class Perplexity:
    ppl: float
    nll: float
    stderr: float
    windows: int
    scored: int
    tokens: int

@dataclass(frozen=True)
class Divergence:
    kl_mean: float
    kl_mean_stderr: float
    kl_median: float
    kl_p99: float
    same_top1: float
    same_top1_stderr: float
    ppl: float
    ppl_base: float
    windows: int
    scored: int

class Stream(Generic[_T]):
    def __iter__(self) -> Iterator[_T]: ...
    def __next__(self) -> _T: ...
    @property
    def reply(self) -> Reply | None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Stream[_T]: ...
    def __exit__(self, *_: object) -> None: ...

class Tokenizer:
    bos: int
    eos: int
    adds_bos: bool
    vocab_size: int
    def encode(self, text: str | bytes, add_special_tokens: bool = ..., parse_special: bool = ...) -> list[int]: ...
    def decode(self, tokens: Iterable[int], skip_special_tokens: bool = ...) -> str: ...
    def decode_bytes(self, tokens: Iterable[int], skip_special_tokens: bool = ...) -> bytes: ...
    def apply_chat_template(self, messages: Iterable[dict[str, Any]], tools: list[dict[str, Any]] | None = ...,
                            tokenize: bool = ..., add_generation_prompt: bool = ..., **variables: Any) -> Any: ...
    def __call__(self, text: str | bytes, **options: bool) -> list[int]: ...

class Model:
    path: str
    info: dict[str, Any]
    tokenizer: Tokenizer
    def __init__(self, path: _Path, *, context: int = ..., sequences: int = ..., threads: int = ...,
                 key_type: str | None = ..., value_type: str | None = ..., device: str | None = ...,
                 speculate: bool = ..., load: Literal["auto", "map", "read"] = ..., logit_rows: int = ...) -> None: ...
    @classmethod
    def from_pretrained(cls, repo: str, *, type: str | None = ..., recipe: str | None = ...,
                        revision: str | None = ..., cache_dir: _Path | None = ..., **options: Any) -> Model: ...
    @overload
    def generate(self, prompt: str | bytes, *, max_tokens: int = ..., grammar: str | None = ...,
                 schema: dict[str, Any] | str | None = ..., logprobs: int = ..., cancel: Cancel | None = ...,
                 **settings: Any) -> Reply: ...
    @overload
    def generate(self, prompt: Sequence[int], *, max_tokens: int = ..., grammar: str | None = ...,
                 schema: dict[str, Any] | str | None = ..., logprobs: int = ..., cancel: Cancel | None = ...,
                 **settings: Any) -> Reply: ...
    @overload
    def generate(self, prompt: Sequence[str] | Sequence[Sequence[int]], *, max_tokens: int = ...,
                 grammar: str | None = ..., schema: dict[str, Any] | str | None = ..., logprobs: int = ...,
                 cancel: Cancel | None = ..., **settings: Any) -> list[Reply]: ...
    __call__ = generate
    def stream(self, prompt: _Prompt, *, max_tokens: int = ..., grammar: str | None = ...,
               schema: dict[str, Any] | str | None = ..., **settings: Any) -> Stream[Piece]: ...
    def create_chat_completion(self, messages: Iterable[dict[str, Any]], *, stream: bool = ..., **request: Any) -> Any: ...
    def create_completion(self, prompt: Any, *, stream: bool = ..., **request: Any) -> Any: ...
    def create_embedding(self, input: str | list[str]) -> dict[str, Any]: ...
    def embed(self, text: Any, *, normalize: bool = ...) -> NDArray[numpy.float32]: ...
    def logits(self, prompt: _Prompt) -> NDArray[numpy.float32]: ...
    def feed(self, tokens: Iterable[int], *, all: bool = ...) -> NDArray[numpy.float32]: ...
    @property
    def position(self) -> int: ...
    def rewind(self, position: int) -> int: ...
    def sample(self, row: NDArray[numpy.float32], context: Iterable[int] = ..., index: int = ..., **settings: Any) -> int: ...
    def perplexity(self, text: str | bytes, *, progress: _Progress | None = ..., **options: Any) -> Perplexity: ...
    def kl(self, base: Model, text: str | bytes, *, progress: _Progress | None = ..., **options: Any) -> Divergence: ...
    def save_state(self, prompt: _Prompt, path: _Path) -> int: ...
    def load_state(self, path: _Path) -> int: ...
    def inspect(self) -> dict[str, Any]: ...
    def verify(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Model: ...
    def __exit__(self, *_: object) -> None: ...

def quantize(checkpoint: _Path, output: _Path, *, recipe: str | None = ..., method: str | None = ...,
             type: str | None = ..., calibration: str | Iterable[str] | None = ...,
             progress: _Progress | None = ..., say: Callable[[str], object] | None = ...,
             **options: Any) -> dict[str, Any]: ...
def inspect(path: _Path) -> dict[str, Any]: ...
def plan_memory(path: _Path, *, context: int = ..., sequences: int = ..., threads: int = ...,
                key_type: str | None = ..., value_type: str | None = ..., device: str | None = ...,
                speculate: bool = ..., logit_rows: int = ...) -> dict[str, int]: ...
