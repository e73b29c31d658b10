"""Iterators over what a call writes: the call runs in a thread of its own, and ends with its iterator."""

import atexit
import contextlib
import os
import queue
import threading
import weakref

from . import _leq

_DONE = object()
_MOST_WAITING = 1024  # pieces; a caller who is slower makes the reply wait
_open = weakref.WeakSet()


@atexit.register
def _end_all():
    # Before Python stops the threads that run calls: their replies end.
    _leq.end_calls()
    for stream in list(_open):
        stream._ended = True
        with contextlib.suppress(queue.Empty):
            while True:  # the thread may wait for room
                stream._queue.get_nowait()
    _leq.wait_for_calls(10)


def _forget_all():  # in a forked process, which has none of the threads
    for stream in list(_open):
        stream._ended = True


os.register_at_fork(after_in_child=_forget_all)


class Stream:
    """Yields what `work(put, cancel)` puts. close(), the end of a with block, or being collected
    cancels it before its next token. Several threads may read it, and any may close it."""

    def __init__(self, work):
        self._cancel = _leq.Cancel()
        self._queue = queue.Queue(_MOST_WAITING)
        self._ended = False
        # The thread must not keep the stream alive: it would never be collected.
        self._state = state = {"error": None, "result": None}
        cancel, pieces = self._cancel, self._queue

        def run():
            try:
                state["result"] = work(pieces.put, cancel)
            except BaseException as error:  # raised where the stream is read
                state["error"] = error
            pieces.put(_DONE)

        self._thread = threading.Thread(target=run, name="leq stream", daemon=True)
        self._thread.start()
        _open.add(self)

    def __iter__(self):
        return self

    def __next__(self):
        if self._ended:
            raise StopIteration
        try:
            piece = self._queue.get()
        except BaseException:  # Ctrl-C
            self.close()
            raise
        if piece is not _DONE:
            return piece
        self._queue.put(_DONE)  # for other threads that wait
        if not self._ended:
            self._ended = True
            self._thread.join()
            if self._state["error"] is not None:
                raise self._state["error"]
        raise StopIteration

    @property
    def reply(self):
        """The finished reply, once the stream has ended; None before."""
        return self._state["result"] if self._ended else None

    def cancel(self):
        """Ends it before its next token; what was written already is still yielded."""
        self._cancel.request()

    def close(self):
        """Cancels what is still written."""
        if self._ended:
            return
        self._ended = True
        self._cancel.request()
        if threading.current_thread() is self._thread:  # which collects garbage; it ends by itself
            return
        while self._queue.get() is not _DONE:
            pass
        self._queue.put(_DONE)  # for threads that read it
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if hasattr(self, "_thread"):
            self.close()
