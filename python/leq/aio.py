"""asyncio twins of Model and Stream: work runs in threads, and ends when its task is cancelled."""

import asyncio
import concurrent.futures

from . import _leq
from .model import Model

# asyncio's own pool has fewer threads than sequences that a model may write at once.
_pool = concurrent.futures.ThreadPoolExecutor(256, thread_name_prefix="leq")


async def _in_thread(work, cancel=None):
    """work() in a thread. Cancelling the task calls `cancel` and waits for the thread, which still uses
    the model."""
    future = asyncio.get_running_loop().run_in_executor(_pool, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if cancel is not None:
            cancel()
        await asyncio.wait([future])
        future.exception()  # has been looked at: what ends the work is the cancelled task
        raise


class AsyncStream:
    """An asynchronous iterator over a Stream. aclose(), the end of an async with block, or a cancelled
    task ends what is still written."""

    def __init__(self, stream):
        self._stream = stream

    def __aiter__(self):
        return self

    async def __anext__(self):
        # StopIteration cannot leave a coroutine, so the end of the stream is a value.
        piece = await _in_thread(lambda: next(self._stream, None), self._stream.cancel)
        if piece is None:
            raise StopAsyncIteration
        return piece

    @property
    def reply(self):
        """The finished reply, once the stream has ended; None before."""
        return self._stream.reply

    async def aclose(self):
        await _in_thread(self._stream.close)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()


class AsyncModel:
    """A Model, or the arguments of one, whose replies are awaited. `model` has all else.

    Open it with sequences=N where N tasks generate at once; each reply is what it would be alone."""

    def __init__(self, model, **options):
        self.model = model if isinstance(model, Model) else Model(model, **options)
        self.tokenizer = self.model.tokenizer

    async def generate(self, prompt, **options):
        """As Model.generate; a cancelled task ends the reply before its next token."""
        cancel = options.pop("cancel", None) or _leq.Cancel()
        return await _in_thread(lambda: self.model.generate(prompt, cancel=cancel, **options),
                                cancel.request)

    def stream(self, prompt, **options):
        """As Model.stream, an AsyncStream."""
        return AsyncStream(self.model.stream(prompt, **options))

    async def create_chat_completion(self, messages, *, stream=False, **request):
        """As Model.create_chat_completion; with stream=True an AsyncStream of chunks."""
        return await self._respond("chat", {"messages": list(messages), **request}, stream)

    async def create_completion(self, prompt, *, stream=False, **request):
        """As Model.create_completion; with stream=True an AsyncStream of chunks."""
        return await self._respond("text", {"prompt": prompt, **request}, stream)

    async def _respond(self, form, request, stream):
        cancel = _leq.Cancel()
        answer = await _in_thread(lambda: self.model._respond(form, request, stream, cancel),
                                  cancel.request)
        return AsyncStream(answer) if stream else answer

    async def embed(self, text, **options):
        """As Model.embed."""
        return await _in_thread(lambda: self.model.embed(text, **options))

    async def close(self):
        await _in_thread(self.model.close)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()
