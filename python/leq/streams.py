"""Iterators over what a call writes: the call runs in a thread of its own, and ends with its iterator."""

import atexit
import queue
import threading
import weakref

from . import _leq

_DONE = object()
_MOST_WAITING = 1024  # pieces; a caller who is slower makes the reply wait
_open = weakref.WeakSet()


@atexit.register
def _close_all():
    # Before Python stops the threads that they wait for.
    for stream in list(_open):
        stream.close()


class Stream:
    """Yields what `work(put, cancel)` puts. close(), the end of a with block, or being collected
    cancels it before its next token."""

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
        while self._queue.get() is not _DONE:
            pass
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if hasattr(self, "_thread"):
            self.close()
