"""Mixed clients for a while: streams, streams that are cut off, schemas, several choices, embeddings,
slots, bodies that are none. The server's memory stays what it was once it was warm, and in the end it
has as many threads and descriptors as in the beginning. LEQ_SOAK_SECONDS says how long (8)."""

import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time

from served import Served, check

SECONDS = float(os.environ.get("LEQ_SOAK_SECONDS", "8"))
CLIENTS = 6
# Between a third of the time and its end. What grows with each request would be far beyond it:
# thousands are answered, and the smallest has a body of some hundred bytes.
MOST_GROWTH = 0.05
MOST_GROWTH_KB = 12 << 10

WORDS = "once upon a time there was little bear cat fox who found the red ball and played".split()


def words(dice, most):
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(1, most)))


def schema(dice):
    return {"type": "object", "required": ["a"], "additionalProperties": False,
            "properties": {"a": {"type": "integer", "maximum": dice.randint(10, 40)},
                           "b": {"enum": ["x", "y"]}}}


def chat(dice, **more):
    return "/v1/chat/completions", {
        "messages": [{"role": "user", "content": words(dice, 60)}],
        "max_tokens": dice.randint(1, 40), **more}


def text(dice, **more):
    return "/v1/completions", {"prompt": words(dice, 200), "max_tokens": dice.randint(1, 60), **more}


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": {"x": {"type": "integer"}}}}}


# What is asked, how often, and the statuses that are right.
KINDS = [
    (4, lambda dice: text(dice, stream=True), {200}),
    (3, lambda dice: chat(dice, stream=True, stream_options={"include_usage": True}), {200}),
    (2, lambda dice: chat(dice, n=3, logprobs=True, top_logprobs=3), {200}),
    (2, lambda dice: chat(dice, response_format={"type": "json_schema", "json_schema": {
        "schema": schema(dice)}}), {200}),
    (1, lambda dice: chat(dice, tools=[tool("f"), tool("g")], tool_choice="required"), {200}),
    (1, lambda dice: ("/v1/embeddings", {"input": [words(dice, 30), words(dice, 300)]}), {200}),
    (1, lambda dice: ("/completion", {"prompt": words(dice, 20), "id_slot": dice.randint(0, 3),
                                      "n_predict": 3}), {200}),
    (1, lambda dice: (f"/slots/{dice.randint(0, 3)}?action={dice.choice(['save', 'restore'])}",
                      {"filename": f"slot-{dice.randint(0, 5)}"}), {200, 400}),
    (1, lambda dice: (f"/slots/{dice.randint(0, 3)}?action=erase", {}), {200}),
    (1, lambda dice: text(dice, temperature=-1), {400}),
    (1, lambda dice: ("/v1/completions", "[" * dice.randint(1, 3000)), {400}),
    (1, lambda dice: ("/nowhere", {}), {404}),
]


class Client(threading.Thread):
    def __init__(self, number, port, end):
        super().__init__()
        self.dice = random.Random(number)
        self.port = port
        self.end = end
        self.answered = self.cut = 0
        self.wrong = []

    def run(self):
        while time.monotonic() < self.end and not self.wrong:
            _, make, right = self.dice.choices(KINDS, [kind[0] for kind in KINDS])[0]
            path, body = make(self.dice)
            try:
                self.ask(path, body if isinstance(body, str) else json.dumps(body), right)
            except (http.client.HTTPException, OSError) as error:
                self.wrong.append(f"{path}: {error!r}")

    def ask(self, path, body, right):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        if self.dice.random() < 0.15:  # before the answer, or in the middle of a stream
            if self.dice.random() < 0.7:
                connection.getresponse().read(self.dice.randint(1, 200))
            connection.close()
            self.cut += 1
            return
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.answered += 1
        if answer.status not in right:
            self.wrong.append(f"{path}: {answer.status} {content[:300]!r}")


def resident_kb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def settled(pid):
    """(threads, descriptors) once nothing is in work."""
    known = None
    for _ in range(100):
        now = (len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd")))
        if now == known:
            return now
        known = now
        time.sleep(0.3)
    raise AssertionError(f"threads and descriptors come and go: {known}")


def work(port, seconds, first):
    end = time.monotonic() + seconds
    clients = [Client(first + i, port, end) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    wrong = [line for client in clients for line in client.wrong]
    check(not wrong, f"all are answered as they should be: {wrong[:3]}")
    return sum(client.answered for client in clients), sum(client.cut for client in clients)


with tempfile.TemporaryDirectory(prefix="leq-soak-") as folder:
    with Served(sys.argv[1], "-np", "4", "-c", "4096", "--slot-save-path", folder) as served:
        pid = served.process.pid
        answered, cut = work(served.port, SECONDS / 3, 0)
        before, warm = settled(pid), resident_kb(pid)
        more = work(served.port, SECONDS * 2 / 3, CLIENTS)
        after, end = settled(pid), resident_kb(pid)
        print(f"{answered + more[0]} answered, {cut + more[1]} cut off in {SECONDS:.0f} s; resident "
              f"{warm} kB after {SECONDS / 3:.0f} s, {end} kB at the end; threads and descriptors "
              f"{before}, {after}")
        check(more[0] > 20, "enough was asked")
        check(after == before, f"threads and descriptors are {before} again: {after}")
        check(end - warm < max(MOST_GROWTH * warm, MOST_GROWTH_KB), "memory is what it was")
