"""Mixed clients of all APIs for a while: streams, streams that are cut off, schemas, tools, several
choices, embeddings, slots, bodies that are none. The server's memory stays what it was once it was
warm, and in the end it has few threads and as many descriptors as in the beginning. The same then for a
folder of two models in the memory of one, which come and go. LEQ_SOAK_SECONDS says how long each takes
(8), LEQ_SOAK_CLIENTS how many ask at once (32)."""

import http.client
import json
import os
import random
import re
import sys
import tempfile
import threading
import time

from served import Served, check

SECONDS = float(os.environ.get("LEQ_SOAK_SECONDS", "8"))
CLIENTS = int(os.environ.get("LEQ_SOAK_CLIENTS", "32"))
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


class Client(threading.Thread):
    def __init__(self, number, served, end):
        super().__init__()
        self.dice = random.Random(number)
        self.port = served.port
        self.models = served.types
        self.kinds = OF_ONE_MODEL if served.types is None else OF_ANY_SERVER
        self.end = end
        self.answered = self.cut = 0
        self.wrong = []

    def run(self):
        while time.monotonic() < self.end and not self.wrong:
            _, make, right = self.dice.choices(self.kinds, [kind[0] for kind in self.kinds])[0]
            path, body = make(self.dice)
            if self.models is not None and isinstance(body, dict):
                body["model"] = self.dice.choice(self.models)
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


def work(served, seconds, first):
    end = time.monotonic() + seconds
    clients = [Client(first + i, served, end) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    wrong = [line for client in clients for line in client.wrong]
    check(not wrong, f"all are answered as they should be: {wrong[:3]}")
    return sum(client.answered for client in clients), sum(client.cut for client in clients)


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse().read()
    connection.close()
    return answer


def memory_of_models(port):
    """Bytes that each model takes once it is loaded."""
    for model in MODELS:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": model, "prompt": "a", "max_tokens": 1}), {"Content-Type": "application/json"})
        check(connection.getresponse().status == 200, f"{model} is loaded")
        connection.close()
    return [one["status"]["memory_bytes"] for one in json.loads(get(port, "/v1/models"))["data"]]


def soak(served):
    pid = served.process.pid
    answered, cut = work(served, SECONDS / 3, 0)
    before, warm = settled(pid), resident_kb(pid)
    more = work(served, SECONDS * 2 / 3, CLIENTS)
    after, end = settled(pid), resident_kb(pid)
    print(f"{answered + more[0]} answered, {cut + more[1]} cut off in {SECONDS:.0f} s; resident "
          f"{warm} kB after {SECONDS / 3:.0f} s, {end} kB at the end; threads and descriptors "
          f"{before}, {after}")
    check(more[0] > 20, "enough was asked")
    check(after[0] < 3 * CLIENTS + 16, f"no more threads than requests at once: {after[0]}")
    check(after[1] == before[1], f"descriptors are {before[1]} again: {after[1]}")
    check(end - warm < max(MOST_GROWTH * warm, MOST_GROWTH_KB), "memory is what it was")


FLAGS = ("-np", "4", "-c", "4096", "--max-queue", "256")
with tempfile.TemporaryDirectory(prefix="leq-soak-") as folder:
    with Served(sys.argv[1], *FLAGS, "--slot-save-path", folder) as served:
        soak(served)
with Served(sys.argv[1], *FLAGS, types=MODELS) as served:
    takes = memory_of_models(served.port)
    served.stop(15)
    budget = max(takes) + min(takes) // 2
    served.start("--port", "0", "--models-memory", str(budget))
    soak(served)
    numbers = get(served.port, "/metrics").decode()
    drops = int(re.search(r"^leq:model_unloads_total (\d+)", numbers, re.M).group(1))
    used = int(re.search(r"^leq:models_memory_bytes (\d+)", numbers, re.M).group(1))
    print(f"models of {takes} bytes in {budget}: {drops} were unloaded for others")
    check(drops > 2, "models come and go")
    check(used <= budget, "within the memory of one")
