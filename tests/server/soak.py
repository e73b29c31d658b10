"""Mixed clients of all APIs for a while: streams, streams that are cut off, schemas, tools, several
choices, embeddings, slots, bodies that are none. A reply to a request with a seed is what the server
said when it was asked alone. The server's memory stays what it was once it was warm, and in the end it
has few threads and as many descriptors as in the beginning. The same then for a folder of two models in
the memory of one, which come and go, and for a hybrid (of ../shared or LEQ_SHARED).

    LEQ_SOAK_SECONDS=8   of each server        LEQ_SOAK_CLIENTS=32  that ask at once
    LEQ_SOAK_PAUSE=0     mean seconds between the requests of a client
    LEQ_SOAK_SLOW=0      connections beside them that send a byte now and then
    LEQ_SOAK_SAMPLES=    a file to which a line of numbers a second (or less often) is appended"""

import http.client
import json
import os
import pathlib
import random
import re
import socket
import sys
import tempfile
import threading
import time

from served import SOURCE, Served, check

SECONDS = float(os.environ.get("LEQ_SOAK_SECONDS", "8"))
CLIENTS = int(os.environ.get("LEQ_SOAK_CLIENTS", "32"))
PAUSE = float(os.environ.get("LEQ_SOAK_PAUSE", "0"))
SLOW = int(os.environ.get("LEQ_SOAK_SLOW", "0"))
SAMPLES = os.environ.get("LEQ_SOAK_SAMPLES")
# Of the time, before memory and descriptors are what they stay.
WARM = 1 / 3
# Between then and the end. What grows with each request would be far beyond it:
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


PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer"}}}


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}


def response(dice, **more):
    return "/v1/responses", {"instructions": words(dice, 9), "input": words(dice, 60),
                             "max_output_tokens": dice.randint(16, 40), **more}


def message(dice, path="/v1/messages", **more):
    return path, {"system": words(dice, 9), "messages": [{"role": "user", "content": words(dice, 60)}],
                  **more}


# What is asked, how often, and the statuses that are right.
OF_ANY_SERVER = [
    (4, lambda dice: text(dice, stream=True), {200}),
    (3, lambda dice: chat(dice, stream=True, stream_options={"include_usage": True}), {200}),
    (2, lambda dice: chat(dice, n=3, logprobs=True, top_logprobs=3), {200}),
    (2, lambda dice: chat(dice, response_format={"type": "json_schema", "json_schema": {
        "schema": schema(dice)}}), {200}),
    (1, lambda dice: chat(dice, tools=[tool("f"), tool("g")], tool_choice="required"), {200}),
    (3, lambda dice: response(dice, stream=True), {200}),
    (1, lambda dice: response(dice, tool_choice="required", tools=[
        {"type": "function", "name": "f", "parameters": PARAMETERS}]), {200}),
    (3, lambda dice: message(dice, stream=True, max_tokens=dice.randint(1, 40)), {200}),
    (1, lambda dice: message(dice, max_tokens=40, tool_choice={"type": "any"}, tools=[
        {"name": "f", "input_schema": PARAMETERS}]), {200}),
    (1, lambda dice: message(dice, "/v1/messages/count_tokens"), {200}),
    (1, lambda dice: ("/v1/rerank", {"query": words(dice, 9),
                                     "documents": [words(dice, 30), words(dice, 90)]}), {200}),
    (1, lambda dice: ("/v1/embeddings", {"input": [words(dice, 30), words(dice, 300)]}), {200}),
    (1, lambda dice: message(dice, max_tokens=9, temperature=-1), {400}),
    (1, lambda dice: text(dice, temperature=-1), {400}),
    (1, lambda dice: ("/v1/completions", "[" * dice.randint(1, 3000)), {400}),
    (1, lambda dice: ("/nowhere", {}), {404}),
]
OF_ONE_MODEL = OF_ANY_SERVER + [
    (1, lambda dice: ("/completion", {"prompt": words(dice, 20), "id_slot": dice.randint(0, 3),
                                      "n_predict": 3}), {200}),
    (1, lambda dice: (f"/slots/{dice.randint(0, 3)}?action={dice.choice(['save', 'restore'])}",
                      {"filename": f"slot-{dice.randint(0, 5)}"}), {200, 400}),
    (1, lambda dice: (f"/slots/{dice.randint(0, 3)}?action=erase", {}), {200}),
]
MODELS = ("int8", "int4")
# Requests whose replies must not depend on what else is asked.
COMPARED = [
    lambda dice: text(dice), lambda dice: text(dice, stream=True), lambda dice: chat(dice),
    lambda dice: chat(dice, stream=True), lambda dice: chat(dice, n=2, logprobs=True, top_logprobs=2),
    lambda dice: chat(dice, response_format={"type": "json_schema", "json_schema": {"schema": schema(dice)}}),
    lambda dice: response(dice, temperature=0), lambda dice: message(dice, max_tokens=30, temperature=0),
    lambda dice: ("/v1/embeddings", {"input": [words(dice, 60)]}),
    lambda dice: ("/v1/rerank", {"query": words(dice, 9), "documents": [words(dice, 30), words(dice, 90)]}),
]
COMPARED_REQUESTS = 30


def opened(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=120)


def post(port, path, body):
    connection = opened(port)
    connection.request("POST", path, body if isinstance(body, str) else json.dumps(body),
                       {"Content-Type": "application/json"})
    return connection


def content_of(reply):
    """The parts of a reply, streamed or not, that depend on the model alone: {member: its values, joined}."""
    found = {}

    def collect(value, name=None):
        if isinstance(value, dict):
            for key, member in value.items():
                collect(member, key)
        elif isinstance(value, list):
            for member in value:
                collect(member, name)
        elif name in ("text", "content", "reasoning_content", "arguments"):
            found[name] = found.get(name, "") + (value or "")
        elif name in ("embedding", "relevance_score", "logprob"):
            found.setdefault(name, []).append(value)

    events = [line[6:] for line in reply.split(b"\n") if line.startswith(b"data: {")]
    for part in events or [reply]:
        collect(json.loads(part))
    return found


def compared_requests(served):
    """[(path, body, content of the reply when nothing else is asked)]"""
    asked = []
    for number in range(COMPARED_REQUESTS):
        path, body = COMPARED[number % len(COMPARED)](random.Random(10_000 + number))
        body["seed"] = number
        if served.types is not None:
            body["model"] = served.types[number * len(served.types) // COMPARED_REQUESTS]
        answer = post(served.port, path, body).getresponse()
        content = answer.read()
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status} {content[:300]!r}")
        asked.append((path, body, content_of(content)))
    return asked


class Client(threading.Thread):
    def __init__(self, number, served, compared, end):
        super().__init__()
        self.dice = random.Random(number)
        self.port = served.port
        self.models = served.types
        self.kinds = OF_ONE_MODEL if served.types is None else OF_ANY_SERVER
        self.compared = compared
        self.end = end
        self.seconds = []  # of each reply
        self.equal = self.cut = 0
        self.wrong = []

    def run(self):
        while time.monotonic() < self.end and not self.wrong:
            path = "?"
            try:
                if self.dice.random() < 0.2:
                    path, body, alone = self.dice.choice(self.compared)
                    self.compare(path, body, alone)
                else:
                    _, make, right = self.dice.choices(self.kinds, [kind[0] for kind in self.kinds])[0]
                    path, body = make(self.dice)
                    if self.models is not None and isinstance(body, dict):
                        body["model"] = self.dice.choice(self.models)
                    self.ask(path, body, right)
            except (http.client.HTTPException, OSError) as error:
                self.wrong.append(f"{path}: {error!r}")
            if PAUSE:
                time.sleep(min(self.dice.expovariate(1 / PAUSE), 10 * PAUSE))

    def compare(self, path, body, alone):
        content = self.answer(post(self.port, path, body), path, {200})
        if not self.wrong and content_of(content) != alone:
            self.wrong.append(f"{path} {body}: {content_of(content)}, alone {alone}")
        self.equal += 1

    def ask(self, path, body, right):
        connection = post(self.port, path, body)
        if self.dice.random() < 0.15:  # before the answer, or in the middle of a stream
            if self.dice.random() < 0.7:
                connection.getresponse().read(self.dice.randint(1, 200))
            connection.close()
            self.cut += 1
            return
        self.answer(connection, path, right)

    def answer(self, connection, path, right):
        start = time.monotonic()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.seconds.append(time.monotonic() - start)
        if answer.status not in right:
            self.wrong.append(f"{path}: {answer.status} {content[:300]!r}")
        return content


class SlowClients(threading.Thread):
    """Connections that begin a request, send a byte now and then, and come back when the server closes them."""

    def __init__(self, port, count):
        super().__init__()
        self.port = port
        self.sockets = [None] * count
        self.ended = threading.Event()
        self.begun = 0

    def run(self):
        at = 0
        while self.sockets and not self.ended.wait(20 / len(self.sockets)):
            at = (at + 1) % len(self.sockets)
            if self.sockets[at] is not None and not self.sent(self.sockets[at]):
                self.sockets[at].close()
                self.sockets[at] = None
            if self.sockets[at] is None:
                self.sockets[at] = socket.create_connection(("127.0.0.1", self.port), timeout=60)
                self.sockets[at].send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-A: ")
                self.begun += 1
        for one in self.sockets:
            if one is not None:
                one.close()

    def sent(self, connection):
        """Whether a byte could be sent; the server says nothing before it closes."""
        try:
            connection.send(b"x")
            connection.recv(1000, socket.MSG_DONTWAIT)
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def stop(self):
        self.ended.set()
        self.join()


def resident_kb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def tasks_and_files(pid):
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


def settled(pid):
    """(threads, descriptors) once nothing is in work."""
    known = None
    for _ in range(100):
        now = tasks_and_files(pid)
        if now == known:
            return now
        known = now
        time.sleep(0.3)
    raise AssertionError(f"threads and descriptors come and go: {known}")


def percentile(numbers, share):
    return sorted(numbers)[min(int(share * len(numbers)), len(numbers) - 1)] if numbers else 0


class Samples(threading.Thread):
    """Appends a line of JSON to LEQ_SOAK_SAMPLES, a second or a 300th of the time apart."""

    def __init__(self, name, pid, clients, begun, answered):
        super().__init__()
        self.name, self.pid, self.clients, self.begun, self.answered = name, pid, clients, begun, answered
        self.ended = threading.Event()

    def run(self):
        seen = [0] * len(self.clients)
        while not self.ended.wait(max(1.0, SECONDS / 300)):
            new = [second for client, at in zip(self.clients, seen) for second in client.seconds[at:]]
            seen = [len(client.seconds) for client in self.clients]
            threads, files = tasks_and_files(self.pid)
            with open(SAMPLES, "a", encoding="ascii") as out:
                print(json.dumps({
                    "server": self.name, "seconds": round(time.monotonic() - self.begun, 1),
                    "resident_kb": resident_kb(self.pid), "threads": threads, "descriptors": files,
                    "answered": self.answered + sum(seen), "p50_ms": round(1e3 * percentile(new, 0.5), 2),
                    "p99_ms": round(1e3 * percentile(new, 0.99), 2)}), file=out)

    def stop(self):
        self.ended.set()
        self.join()


def work(served, name, compared, seconds, first, begun, answered):
    """(replies, those compared, cut off, slow connections); `answered` are the replies since `begun`."""
    end = time.monotonic() + seconds
    clients = [Client(first + i, served, compared, end) for i in range(CLIENTS)]
    beside = [SlowClients(served.port, SLOW)]
    if SAMPLES:
        beside.append(Samples(name, served.process.pid, clients, begun, answered))
    for thread in clients + beside:
        thread.start()
    for client in clients:
        client.join()
    for thread in beside:
        thread.stop()
    wrong = [line for client in clients for line in client.wrong]
    check(not wrong, f"all are answered as they should be: {wrong[:3]}")
    return (sum(len(client.seconds) for client in clients), sum(client.equal for client in clients),
            sum(client.cut for client in clients), beside[0].begun)


def memory_of_models(port):
    """Bytes that each model takes once it is loaded."""
    for model in MODELS:
        connection = post(port, "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1})
        check(connection.getresponse().status == 200, f"{model} is loaded")
        connection.close()
    return [one["status"]["memory_bytes"] for one in json.loads(get(port, "/v1/models"))["data"]]


def get(port, path):
    connection = opened(port)
    connection.request("GET", path)
    answer = connection.getresponse().read()
    connection.close()
    return answer


def soak(served, name):
    pid = served.process.pid
    compared = compared_requests(served)
    begun = time.monotonic()
    first = work(served, name, compared, SECONDS * WARM, 0, begun, 0)
    before, warm = settled(pid), resident_kb(pid)
    second = work(served, name, compared, SECONDS * (1 - WARM), CLIENTS, begun, first[0])
    after, end = settled(pid), resident_kb(pid)
    answered, equal, cut, slow = (a + b for a, b in zip(first, second))
    print(f"{name}: {answered} answered, {equal} of them as when asked alone, {cut} cut off, {slow} slow connections in "
          f"{SECONDS:.0f} s; resident {warm} kB after {SECONDS * WARM:.0f} s, {end} kB at the end; threads and "
          f"descriptors {before}, {after}")
    check(second[0] > 20, "enough was asked")
    check(after[0] < 3 * CLIENTS + 16, f"no more threads than requests at once: {after[0]}")
    check(after[1] == before[1], f"descriptors are {before[1]} again: {after[1]}")
    check(end - warm < max(MOST_GROWTH * warm, MOST_GROWTH_KB), "memory is what it was")


FLAGS = ("-np", "4", "-c", "4096", "--max-queue", "256", "--max-connections", str(1024 + SLOW))
HYBRID = pathlib.Path(os.environ.get("LEQ_SHARED", SOURCE.parent / "shared")) / "models/qwen35-tiny"
with tempfile.TemporaryDirectory(prefix="leq-soak-") as folder:
    with Served(sys.argv[1], *FLAGS, "--slot-save-path", folder) as served:
        soak(served, "one model")
with Served(sys.argv[1], *FLAGS, types=MODELS) as served:
    takes = memory_of_models(served.port)
    served.stop(15)
    budget = max(takes) + min(takes) // 2
    served.start("--port", "0", "--models-memory", str(budget))
    soak(served, "two models in the memory of one")
    numbers = get(served.port, "/metrics").decode()
    drops = int(re.search(r"^leq:model_unloads_total (\d+)", numbers, re.M).group(1))
    used = int(re.search(r"^leq:models_memory_bytes (\d+)", numbers, re.M).group(1))
    print(f"models of {takes} bytes in {budget}: {drops} were unloaded for others")
    check(drops > 2, "models come and go")
    check(used <= budget, "within the memory of one")
if HYBRID.exists():
    with tempfile.TemporaryDirectory(prefix="leq-soak-") as folder:
        with Served(sys.argv[1], *FLAGS, "--slot-save-path", folder, checkpoint=HYBRID) as served:
            soak(served, "a hybrid")
else:
    print(f"no hybrid: {HYBRID} is not there")
