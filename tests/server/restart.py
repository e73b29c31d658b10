"""A server that is killed (SIGKILL) in the middle of streams and of a save, and started again at once
on the same port with the same folder: it serves the same replies, and nothing is half-written. What
it kept at its last orderly end is there still."""

import http.client
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

from served import Served, check

TEXT = "Once upon a time there was a little bear who lived in the woods with its friends. " * 6


def ask(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def story(port, text=TEXT):
    status, answer = ask(port, "/completion", {"prompt": text, "n_predict": 16, "seed": 7,
                                               "temperature": 1.0})
    check(status == 200, "a story is written")
    return answer


def stream_until_cut(port, begun):
    """Reads a stream to its end, or to the server's."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "The little cat", "max_tokens": 900, "stream": True, "ignore_eos": True}))
        answer = connection.getresponse()
        answer.read(1)
        begun.release()
        while answer.read(64):
            pass
    except (http.client.HTTPException, OSError):
        pass
    finally:
        connection.close()


def save_for_ever(port, begun):
    try:
        for i in range(10_000):
            ask(port, "/slots/0?action=save", {"filename": f"slot-{i % 3}"})
            begun.release()
    except (http.client.HTTPException, OSError, ValueError):
        pass


def killed_at_work(served, port, seconds):
    begun = threading.Semaphore(0)
    threads = [threading.Thread(target=stream_until_cut, args=(port, begun)) for _ in range(3)]
    threads.append(threading.Thread(target=save_for_ever, args=(port, begun)))
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    time.sleep(seconds)
    served.kill()
    for thread in threads:
        thread.join()


def half_written(folder):
    return [name for name in os.listdir(folder) if ".tmp" in name]


with tempfile.TemporaryDirectory(prefix="leq-slots-") as folder:
    flags = ("-np", "4", "-c", "4096", "--slot-save-path", folder)
    with Served(sys.argv[1], *flags) as served:
        port = served.port
        first = story(port)
        served.stop(signal.SIGTERM)
        kept = os.listdir(folder)
        check(len(kept) == 1, f"an orderly end keeps its texts in one file: {kept}")
        for seconds in (0.0, 0.02, 0.1):
            served.start("--port", str(port))
            again = story(port)
            check(again["content"] == first["content"], "the reply is the same")
            check(again["timings"]["prompt_n"] == 1, "one token of its prompt was fed")
            killed_at_work(served, port, seconds)
            check(not half_written(folder), f"nothing is half-written: {os.listdir(folder)}")
        served.start("--port", str(port))
        for name in sorted(os.listdir(folder)):
            if not name.startswith("slot-"):
                continue
            status, answer = ask(port, "/slots/1?action=restore", {"filename": name})
            check(status == 200 and answer["n_restored"] > 0, f"{name} is whole")
        check(story(port)["content"] == first["content"], "the reply is the same at the end")
        # While it keeps its texts: the old file or the new one, never half of one.
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
        served.kill()
        check(not half_written(folder), "nothing is half-written at an end that was cut off")
        served.start("--port", str(port))
        check("damaged" not in "".join(served.log), "what was kept is whole")
        check(story(port)["timings"]["prompt_n"] == 1, "and it is what was kept")
