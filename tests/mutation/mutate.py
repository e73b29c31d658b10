"""Do the tests see planted faults? Changes one place of the source at a time, builds and runs the tests of its folder.

    mutate.py BUILD RESULTS [--count 500] [--seed 1] [--rooms src/cache,src/engine] [--minutes M]

Run it in a working tree of its own: it edits files (and restores them). BUILD is a build folder of that tree, best file
by file (cmake --preset dev -DLEQ_BY_FOLDER=OFF -DCMAKE_BUILD_TYPE=Release -DLEQ_WERROR=OFF, with ccache). Seed and
number determine a mutant. RESULTS is a file with one line of JSON for each mutant that has been judged; the same
command continues after the last one. Prints a table by folder and the survivors.

A mutant is killed if a test fails, crashes or takes ten times as long. A mutant that does not compile is not counted.
The first entry of ctest that fails ends a mutant's tests: those of the nearest program first, quick ones before slow.
"""

import argparse
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

# Folders of the source, and the test programs that must notice a fault there, the nearest first.
ROOMS = {
    "src/backend/cpu": ["backend", "conformance", "model"],
    "src/tensor": ["tensor", "backend", "quantize"],
    "src/cache": ["cache", "engine"],
    "src/engine": ["engine", "server"],
    "src/sampling": ["sampling", "engine"],
    "src/convert": ["convert", "model"],
    "src/format": ["format", "convert"],
    "src/model": ["model", "engine"],
    "src/ranks": ["ranks", "model"],
    "src/tokenizer": ["tokenizer"],
    "src/grammar": ["grammar"],
    "src/chat": ["chat", "server"],
    "src/quantize": ["quantize"],
    "src/server": ["server"],
    "src/hub": ["hub"],
    "families": ["convert", "model"],
}

# (name, pattern, replacement), for code without strings and comments.
CHANGES = [
    ("bound", r" < ", " <= "), ("bound", r" <= ", " < "), ("bound", r" > ", " >= "), ("bound", r" >= ", " > "),
    ("equality", r" == ", " != "), ("equality", r" != ", " == "),
    ("sum", r" \+ ", " - "), ("sum", r" - ", " + "), ("sum", r" \+= ", " -= "), ("sum", r" -= ", " += "),
    ("product", r"(?<=\w) \* (?=\w)", " + "), ("product", r" / ", " * "), ("product", r" % ", " / "),
    ("condition", r" && ", " || "), ("condition", r" \|\| ", " && "), ("condition", r"if \(!", "if ("),
    ("extreme", r"std::min\b", "std::max"), ("extreme", r"std::max\b", "std::min"),
    ("result", r"return true;", "return false;"), ("result", r"return false;", "return true;"),
    ("constant", r"(?<![\w.'\"])(\d{1,4})(?![\w.'\"])", lambda found: str(int(found[1]) + 1)),
    ("loop", r"\bcontinue;", "break;"), ("loop", r"\bbreak;", "continue;"),
    ("call", r"^\s+(?:[\w:]+(?:\.|->))*[\w:]+\((?:[^;]*)\);$", ";"),
]
# Lines whose faults change no result: reserved memory, clocks, assertions of the code about itself.
UNSEEN = re.compile(r"reserve\(|ensure\(|static_assert|clock_|Stopwatch|^\s*(#|//|\*|using |template|case .*:$|return;)")


def masked(line):
    """The line with strings, characters and comments replaced by blanks of the same length."""
    line = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'', lambda found: "\x00" * len(found[0]), line)
    return re.sub(r"//.*", lambda found: "\x00" * len(found[0]), line)


def places_of(room):
    """All (file, line number, change, start, end, replacement) of a folder, in a fixed order."""
    places = []
    for path in sorted(pathlib.Path(room).rglob("*")):
        if path.suffix not in (".cpp", ".h", ".inc") or "arm" in path.parts or "generic" in path.parts:
            continue
        for number, line in enumerate(path.read_text().split("\n")):
            if UNSEEN.search(line):
                continue
            for name, pattern, replacement in CHANGES:
                for found in re.finditer(pattern, masked(line)):
                    if name == "call" and not re.match(r"\s+(return|throw|const|auto|delete|else)\b", line):
                        places.append((path, number, name, found.start(), found.end(), replacement))
                    elif name != "call":
                        text = replacement(found) if callable(replacement) else replacement
                        places.append((path, number, name, found.start(), found.end(), text))
    return places


def choose(count, seed, rooms):
    """The first `count` mutants of a seed: a folder by turns, then any of its files, then any place of the file."""
    dice = random.Random(seed)
    by_room = {}
    for room in rooms:
        by_room[room] = {}
        for place in places_of(room):
            by_room[room].setdefault(place[0], []).append(place)
    chosen = []
    for number in range(count):
        files = by_room[rooms[number % len(rooms)]]
        chosen.append((rooms[number % len(rooms)], dice.choice(files[dice.choice(sorted(files))])))
    return chosen


def run(words, seconds):
    """(status, seconds); the status is None after `seconds`. The program's children end with it."""
    start = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return child.wait(seconds), time.monotonic() - start
    except subprocess.TimeoutExpired:
        subprocess.run(["kill", "-KILL", "--", f"-{child.pid}"], check=False)
        child.wait()
        return None, time.monotonic() - start


def make(build, program):
    return run(["ninja", "-C", build, f"{program}_tests"], 3600)[0] == 0


def test(build, entries, seconds):
    words = ["env", "GTEST_FAIL_FAST=1", "ctest", "--test-dir", build, "-R", f"^{entries}_[0-9]$", "--stop-on-failure"]
    return run(words, seconds)


class Judge:
    def __init__(self, build):
        self.build, self.whole = build, {}  # seconds of entries without a change

    def verdict(self, room, change, restore):
        """'stillborn', 'survived', or the entries that saw the change."""
        for program in ROOMS[room]:
            for entries in (program, f"{program}_slow"):
                if entries not in self.whole:
                    restore()
                    good = make(self.build, program)
                    status, self.whole[entries] = test(self.build, entries, 3600)
                    if not good or status != 0:
                        sys.exit(f"{entries}: fails without a change")
                change()
                if not make(self.build, program):
                    return "stillborn"
                if test(self.build, entries, 10 * self.whole[entries] + 20)[0] != 0:
                    return entries
        return "survived"


def mutate(judge, room, place):
    path, number, name, start, end, replacement = place
    original = path.read_text()

    def write(text):
        if path.read_text() != text:
            path.write_text(text)

    lines = original.split("\n")
    before = lines[number]
    lines[number] = before[:start] + replacement + before[end:]
    began = time.monotonic()
    try:
        verdict = judge.verdict(room, lambda: write("\n".join(lines)), lambda: write(original))
    finally:
        write(original)
    return {"room": room, "file": str(path), "line": number + 1, "change": name, "before": before.strip(),
            "after": lines[number].strip(), "verdict": verdict, "seconds": round(time.monotonic() - began)}


def report(results):
    print("| folder | mutants | killed | share |\n|---|---:|---:|---:|")
    counted = [one for one in results if one["verdict"] != "stillborn"]
    for room in [*ROOMS, "all"]:
        of_room = [one for one in counted if room in (one["room"], "all")]
        killed = sum(one["verdict"] != "survived" for one in of_room)
        if of_room:
            print(f"| {room} | {len(of_room)} | {killed} | {100 * killed / len(of_room):.0f} % |")
    print()
    for one in counted:
        if one["verdict"] == "survived":
            print(f"{one['file']}:{one['line']}: {one['change']}\n  - {one['before']}\n  + {one['after']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="starts no mutant after this time")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # restores the file
    end = time.monotonic() + 60 * arguments.minutes
    rooms = arguments.rooms.split(",")
    results = [json.loads(line) for line in arguments.results.open()] if arguments.results.exists() else []
    mutants = choose(arguments.count, arguments.seed, rooms)
    judge = Judge(arguments.build)
    for room, place in mutants[len(results):]:
        if time.monotonic() > end:
            break
        results.append(mutate(judge, room, place))
        with arguments.results.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
    report(results)


if __name__ == "__main__":
    main()
