"""What /tokenize takes of memory and gives back: tokenize_memory.py TOOLS."""

import json
import sys
import threading
import urllib.request

from served import Served, check


def memory(served, name):
    with open(f"/proc/{served.process.pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
    raise RuntimeError(name)


def tokenize(served, text):
    body = json.dumps({"content": text}).encode()
    request = urllib.request.Request(served.url + "/tokenize", body, {"Content-Type": "application/json"})
    return len(json.load(urllib.request.urlopen(request))["tokens"])


def main():
    with Served(sys.argv[1]) as served:
        tokenize(served, "warm")
        before = memory(served, "VmRSS")
        for name, text in (("words", "Once upon a time, there was a cat. " * 430_000),
                           ("one word", "x" * 15_000_000)):
            count = tokenize(served, text)
            peak = memory(served, "VmHWM") - before
            left = memory(served, "VmRSS") - before
            check(peak < 40 * 15, f"15 MB of {name}: {count} tokens, {peak:.0f} MiB at most")
            check(left < 64, f"{left:.0f} MiB of it stay")
        clients = [threading.Thread(target=tokenize, args=(served, "a cat and a dog. " * 60_000))
                   for _ in range(8)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        left = memory(served, "VmRSS") - before
        check(left < 64, f"after eight of 1 MB at once {left:.0f} MiB stay")


if __name__ == "__main__":
    main()
