"""Settings of replies, and requests and results of chats, for type checkers."""

from typing import Any, Literal, TypedDict, Union


class Settings(TypedDict, total=False):
    """What is drawn and where a reply ends (docs/sampling.md); what is left out is as the model has it."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    repeat_penalty: float
    repetition_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    mirostat: int
    mirostat_ent: float
    mirostat_lr: float
    mirostat_tau: float
    mirostat_eta: float
    seed: int
    stop: Union[str, list[str]]
    logit_bias: Union[dict[str, float], list[list[Any]]]
    ignore_eos: bool
    max_completion_tokens: int
    n_predict: int


class _Request(Settings, total=False):
    max_tokens: Union[int, None]
    n: int
    response_format: dict[str, Any]
    json_schema: dict[str, Any]
    grammar: str
    return_tokens: bool
    stream_options: dict[str, Any]


class ChatRequest(_Request, total=False):
    """Members of docs/server.md beside the messages."""

    model: str
    user: str
    logprobs: bool
    top_logprobs: int
    tools: list[dict[str, Any]]
    tool_choice: Union[str, dict[str, Any]]
    parallel_tool_calls: bool
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    reasoning_format: Literal["none", "auto", "deepseek"]
    thinking_budget_tokens: int
    continue_final_message: bool
    add_generation_prompt: bool
    chat_template_kwargs: dict[str, Any]


class CompletionRequest(_Request, total=False):
    """Members of docs/server.md beside the prompt."""

    model: str
    user: str
    logprobs: int
    echo: bool


class TokenLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(TypedDict):
    content: list[ContentLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[Union[float, None]]
    top_logprobs: list[Union[dict[str, float], None]]
    text_offset: list[int]


class Function(TypedDict):
    name: str
    arguments: str  # JSON


class ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: Function


class Usage(TypedDict, total=False):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


FinishReason = Literal["stop", "length", "tool_calls"]


class _MessageExtras(TypedDict, total=False):
    reasoning_content: str
    tool_calls: list[ToolCall]


class ChatMessage(_MessageExtras):
    role: Literal["assistant"]
    content: Union[str, None]
    refusal: None


class ChatChoice(TypedDict):
    index: int
    finish_reason: FinishReason
    logprobs: Union[ChatLogprobs, None]
    message: ChatMessage


class _Extras(TypedDict, total=False):
    warnings: list[str]
    timings: dict[str, float]


class _Answer(_Extras):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage


class ChatCompletion(_Answer):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class CompletionChoice(TypedDict):
    index: int
    finish_reason: FinishReason
    logprobs: Union[CompletionLogprobs, None]
    text: str


class Completion(_Answer):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class ChatDelta(TypedDict, total=False):
    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[dict[str, Any]]


class ChatChunkChoice(TypedDict):
    index: int
    finish_reason: Union[FinishReason, None]
    logprobs: Union[ChatLogprobs, None]
    delta: ChatDelta


class _ChunkExtras(_Extras, total=False):
    usage: Union[Usage, None]


class _Chunk(_ChunkExtras):
    id: str
    created: int
    model: str
    system_fingerprint: str


class ChatChunk(_Chunk):
    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]


class CompletionChunkChoice(TypedDict):
    index: int
    finish_reason: Union[FinishReason, None]
    logprobs: Union[CompletionLogprobs, None]
    text: str


class CompletionChunk(_Chunk):
    object: Literal["text_completion"]
    choices: list[CompletionChunkChoice]


class EmbeddingRow(TypedDict):
    object: Literal["embedding"]
    index: int
    embedding: list[float]


class Embeddings(TypedDict):
    object: Literal["list"]
    data: list[EmbeddingRow]
    model: str
    usage: Usage


class MeasureOptions(TypedDict, total=False):
    """How a text is measured (docs/perplexity.md)."""

    protocol: Literal["hf", "hf-stride", "llamacpp-512"]
    join: str
    window: int
    stride: int
    chunks: int
    threads: int
    device: str
    key_type: str
    value_type: str


class QuantizeOptions(TypedDict, total=False):
    """More settings of quantize()."""

    act: str
    samples: int
    length: int
    seed: int
    threads: int
    target_bpw: float
    search_evaluations: int
    search_windows: int
    judge: bool
    restart: bool
