#!/usr/bin/env python3
"""Parallel streaming clients of an OpenAI API: tokens a second, time to the first token, time
between tokens. Prompts are random ids and replies have a fixed length, so that the same load can
be put on any server that takes ids as a prompt and knows ignore_eos (leq-server, llama-server).

    bench/server_load.py http://127.0.0.1:8080 --clients 1,4,16,64 -p 128 -n 64
    bench/server_load.py http://127.0.0.1:8080 --clients 16 -p 64 -n 256 --long-prompt 2048

Needs Python alone. What it takes of the machine itself is told at the end (stderr)."""

import argparse
import asyncio
import json
import math
import random
import resource
import sys
import time
import urllib.parse

# Ids below are special tokens and bytes in most vocabularies.
FIRST_ID = 300


def percentile(numbers, share):
    """The smallest of `numbers` that at least this share of them does not exceed."""
    ordered = sorted(numbers)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


class Reply:
    """One streamed reply: seconds from its request to each event with text, and its usage."""

    def __init__(self):
        self.times = []
        self.tokens = 0
        self.prompt_tokens = 0

    def take(self, line, since):
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            return
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(f"the server says: {event['error']}")
        if any(choice.get("text") for choice in event.get("choices", [])):
            self.times.append(time.perf_counter() - since)
        if event.get("usage"):
            self.tokens = event["usage"]["completion_tokens"]
            self.prompt_tokens = event["usage"]["prompt_tokens"]

    def gaps(self):
        return [after - before for before, after in zip(self.times, self.times[1:])]


async def body_pieces(reader, headers):
    """The bytes of a body as they come, in chunks or up to the connection's end."""
    if b"chunked" not in headers.get(b"transfer-encoding", b""):
        while piece := await reader.read(65536):
            yield piece
        return
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def read_head(reader):
    status = int((await reader.readline()).split()[1])
    headers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip().lower()
    return status, headers


class Load:
    def __init__(self, options):
        self.options = options
        self.url = urllib.parse.urlsplit(options.url)
        self.asked = 0

    def request(self, prompt_tokens, reply_tokens):
        """The bytes of a request for a prompt that no other one begins like."""
        self.asked += 1
        dice = random.Random(self.options.seed * 1_000_003 + self.asked)
        body = json.dumps({
            "prompt": [dice.randrange(FIRST_ID, self.options.vocabulary)
                       for _ in range(prompt_tokens)],
            "max_tokens": reply_tokens, "ignore_eos": True, "seed": self.asked,
            "temperature": self.options.temperature, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
            "stream": True, "stream_options": {"include_usage": True}}).encode()
        key = f"Authorization: Bearer {self.options.api_key}\r\n" if self.options.api_key else ""
        return (f"POST /v1/completions HTTP/1.1\r\nHost: {self.url.netloc}\r\n{key}"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                f"Connection: close\r\n\r\n").encode() + body

    async def reply(self, prompt_tokens, reply_tokens):
        reply, rest = Reply(), b""
        request = self.request(prompt_tokens, reply_tokens)
        since = time.perf_counter()
        reader, writer = await asyncio.open_connection(self.url.hostname, self.url.port or 80)
        try:
            writer.write(request)
            status, headers = await read_head(reader)
            async for piece in body_pieces(reader, headers):
                if status != 200:
                    raise RuntimeError(f"status {status}: {piece.decode(errors='replace')}")
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    reply.take(line.strip(), since)
        finally:
            writer.close()
        if len(reply.times) < min(reply_tokens, 2):
            raise RuntimeError(f"a reply of {reply_tokens} tokens came in {len(reply.times)} events"
                               " with text: ask for longer ones")
        if reply.tokens != reply_tokens or reply.prompt_tokens != prompt_tokens:
            raise RuntimeError(f"expected {prompt_tokens} and {reply_tokens} tokens, the usage has "
                               f"{reply.prompt_tokens} and {reply.tokens}")
        return reply

    async def client(self, replies):
        for _ in range(self.options.requests):
            replies.append(await self.reply(self.options.prompt, self.options.reply))

    async def long_prompts(self, replies):
        """One after another, until it is cancelled."""
        while True:
            await asyncio.sleep(self.options.long_every)
            replies.append(await self.reply(self.options.long_prompt, 4))

    async def run(self, clients):
        replies, long_replies = [], []
        since = time.perf_counter()
        long = None
        if self.options.long_prompt:
            long = asyncio.create_task(self.long_prompts(long_replies))
        await asyncio.gather(*(self.client(replies) for _ in range(clients)))
        seconds = time.perf_counter() - since
        if long and long.done():
            long.result()  # it ends by an error alone
        if long:
            long.cancel()
        return self.row(clients, seconds, replies, long_replies)

    def row(self, clients, seconds, replies, long_replies):
        first = [reply.times[0] for reply in replies]
        gaps = [gap for reply in replies for gap in reply.gaps()]
        tokens = sum(reply.tokens for reply in replies)
        median = percentile(gaps, 0.5)
        row = {
            "clients": clients, "tokens_per_second": tokens / seconds,
            "first_ms_p50": 1e3 * percentile(first, 0.5),
            "first_ms_p99": 1e3 * percentile(first, 0.99),
            "between_ms_p50": 1e3 * median, "between_ms_p99": 1e3 * percentile(gaps, 0.99),
            "p99_over_p50": percentile(gaps, 0.99) / median,
            "between_ms_max": 1e3 * max(gaps),
            "tokens_per_event": tokens / sum(len(reply.times) for reply in replies),
            "seconds": seconds}
        if self.options.long_prompt:
            row["long_prompts"] = len(long_replies)
            if long_replies:
                row["long_first_ms_p50"] = 1e3 * percentile(
                    [reply.times[0] for reply in long_replies], 0.5)
        return row


def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", default="1,4,16,64", help="so many at once; a comma list")
    parser.add_argument("-p", "--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("-n", "--reply", type=int, default=64, help="tokens of a reply")
    parser.add_argument("--requests", type=int, default=2, help="of each client, one by one")
    parser.add_argument("--long-prompt", type=int, default=0,
                        help="one more client sends prompts of so many tokens meanwhile")
    parser.add_argument("--long-every", type=float, default=2.0,
                        help="seconds between these; the first comes after so long")
    parser.add_argument("--vocabulary", type=int, default=32000, help="ids of prompts are below")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1, help="of the prompts")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--no-warm-up", action="store_true", help="no untimed request before")
    parser.add_argument("-o", "--output", choices=["md", "json"], default="md")
    return parser.parse_args()


async def main(options):
    load = Load(options)
    rows = []
    if not options.no_warm_up:
        await load.reply(options.prompt, 2)
    since = time.perf_counter()
    for clients in map(int, options.clients.split(",")):
        rows.append(await load.run(clients))
        if options.output == "json":
            continue
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + " |\n" + "|---:" * len(rows[0]) + "|")
        print("| " + " | ".join(f"{value:.4g}" if isinstance(value, float) else str(value)
                                for value in rows[-1].values()) + " |", flush=True)
    if options.output == "json":
        print(json.dumps(rows, indent=1))
    used = resource.getrusage(resource.RUSAGE_SELF)
    share = (used.ru_utime + used.ru_stime) / (time.perf_counter() - since)
    print(f"the clients took {100 * share:.0f} % of one core", file=sys.stderr)


if __name__ == "__main__":
    try:
        asyncio.run(main(read_options()))
    except (OSError, RuntimeError) as error:
        sys.exit(f"server_load: {error}")
