"""Do the tests see planted faults? Changes one place of the source at a time, builds and runs the tests of its folder.

    mutate.py BUILD RESULTS [--count 500] [--seed 1] [--rooms src/cache,src/engine] [--minutes M]    0: prints only

Run it in a working tree of its own: it edits files (and restores them). BUILD is a build folder of that tree, best file
by file with a fast linker (cmake --preset dev -DLEQ_BY_FOLDER=OFF -DLEQ_WERROR=OFF
-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold). Seed and number determine a mutant. RESULTS is a file with one line of JSON for
each mutant that has been judged; the same command continues after the last one. Prints a table by folder and the
survivors.

A mutant is killed if a test fails, crashes, takes three times the processor time, or does not end. A mutant that does not
compile is not counted. The first program that fails ends a mutant's tests: first the suites of tests/FOLDER whose file
is named like the changed one, then the quick tests of the folder, then those of the next folder. Of each folder run as
many tests as end in --seconds together, the fastest first, which are nearly all; so the share of killed mutants is a
lower bound. With --seconds 1e9 all run, the slow ones too.
Headers are left out, except those of kernels: half of the library and of the tests would be compiled again for each.
"""

import argparse
import json
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

# Folders of the source, and the test programs (folders of tests) that must notice a fault there, the nearest first.
ROOMS = {
    "src/backend/cpu": ["backend", "conformance", "model"],
    "src/tensor": ["tensor", "backend", "quantize"],
    "src/cache": ["cache", "engine"],
    "src/engine": ["engine", "server"],
    "src/sampling": ["sampling", "engine"],
    "src/convert": ["convert", "tokenizer", "model"],
    "src/format": ["format", "convert"],
    "src/model": ["model", "engine"],
    "src/ranks": ["ranks", "model"],
    "src/tokenizer": ["tokenizer"],
    "src/grammar": ["grammar", "chat"],
    "src/chat": ["chat", "server"],
    "src/quantize": ["quantize"],
    "src/server": ["server"],
    "src/hub": ["hub"],
    "src/runtime": ["runtime", "engine", "server"],
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
UNSEEN = re.compile(
    r"reserve\(|ensure\(|static_assert|clock_|Stopwatch|^\s*(#|//|\*|using |template|case .*:$|return;)")


def masked(line):
    """The line with strings, characters and comments replaced by blanks of the same length."""
    line = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'', lambda found: "\x00" * len(found[0]), line)
    return re.sub(r"//.*", lambda found: "\x00" * len(found[0]), line)


def has_amx():
    return "amx_tile" in pathlib.Path("/proc/cpuinfo").read_text()


def places_of(room):
    """All (file, line number, change, start, end, replacement) of the code of a folder that runs here, in order."""
    places = []
    for path in sorted(pathlib.Path(room).rglob("*")):
        counts = path.suffix in (".cpp", ".inc") or (path.suffix == ".h" and "kernels" in path.parts)
        if not counts or "arm" in path.parts or "generic" in path.parts or ("amx" in path.stem and not has_amx()):
            continue
        for number, line in enumerate(path.read_text().split("\n")):
            if UNSEEN.search(line):
                continue
            for name, pattern, replacement in CHANGES:
                for found in re.finditer(pattern, masked(line)):
                    if name == "call" and not re.match(r"\s+(return|throw|const|auto|delete|else)\b", line) and \
                            found[0].count("(") == found[0].count(")"):
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


def run(words, folder, processor=3600, wall=36000):
    """(status, processor seconds); the status is None after `wall` seconds. Children end with the program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    most = (int(processor), int(processor))
    child = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             start_new_session=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, most))
    try:
        status = child.wait(wall)
    except subprocess.TimeoutExpired:
        status = None
    subprocess.run(["kill", "-KILL", "--", f"-{child.pid}"], check=False, stderr=subprocess.DEVNULL)
    child.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def suites_like(path, program):
    """A filter for the suites of tests/PROGRAM in files that are named like `path`."""
    names = set()
    for test in pathlib.Path("tests", program).glob("*_test.cpp"):
        own = test.stem.removesuffix("_test")
        if own in path.stem or path.stem in own:
            names.update(re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", test.read_text(), re.M))
    return ":".join(f"*{name}.*:*{name}/*" for name in sorted(names))


class Judge:
    def __init__(self, build, seconds, rooms):
        self.build, self.seconds, self.whole = build, seconds, {}  # what measure() returns
        # ctest knows no command of a program that is not built
        programs = sorted({program for room in rooms for program in ROOMS[room]})
        if not self.make(*programs):
            sys.exit(f"{build}: the tests cannot be built without a change")
        listed = json.loads(subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                                           stdout=subprocess.PIPE).stdout)
        self.commands = {one["name"].removesuffix("_0"): one["command"] for one in listed["tests"]
                         if one["name"].endswith("_0") and "command" in one}

    def make(self, *programs):
        return run(["ninja", "-C", self.build, *(f"{program}_tests" for program in programs)], ".")[0] == 0

    def test(self, entries, chosen, processor=3600, wall=36000, *more):
        words = [self.commands[entries][0], f"--gtest_filter={chosen}", *(more or ["--gtest_fail_fast"])]
        return run(words, pathlib.Path(self.build, "tests"), processor, wall)

    def measure(self, program, entries):
        """Of the tests of `entries`: the filter of those that run for each mutant, their processor seconds, and the names
        of those that fail without a change."""
        given = next((word for word in self.commands[entries] if word.startswith("--gtest_filter=")), "=*")
        chosen = given.partition("=")[2]
        times = pathlib.Path(self.build, f"times_{entries}.json").resolve()
        if not self.make(program) or self.test(entries, chosen, 3600, 36000, f"--gtest_output=json:{times}")[0] is None:
            sys.exit(f"{entries}: cannot be built, or does not end, without a change")
        tests = sorted((float(test["time"].rstrip("s")), f"{test['classname']}.{test['name']}", "failures" in test)
                       for suite in json.loads(times.read_text())["testsuites"] for test in suite["testsuite"]
                       if test["result"] == "COMPLETED")
        failing = [name for _, name, fails in tests if fails]
        if failing:
            print(f"{entries}: without a change these fail, and are left out: {' '.join(failing)}", file=sys.stderr)
        slow, left = [], self.seconds
        for seconds, name, fails in tests:
            left -= seconds
            if left < 0 and not fails:
                slow.append(name)
        if slow or failing:
            chosen += ("" if "-" in chosen else "-" if chosen == "*" else ":-") + ":" + ":".join(slow + failing)
        return chosen, self.test(entries, chosen)[1], failing

    def verdict(self, room, path, change, restore):
        """'stillborn', 'survived', or the entries that saw the change; and seconds of building, of tests."""
        built, tested = 0.0, 0.0
        programs = ROOMS[room]
        order = [(programs[0], programs[0], suites_like(path, programs[0])), *((one, one, None) for one in programs)]
        if self.seconds >= 1e9:
            order += [(one, f"{one}_slow", None) for one in programs if f"{one}_slow" in self.commands]
        for program, entries, only in order:
            if only == "":
                continue
            if entries not in self.whole:
                restore()
                self.whole[entries] = self.measure(program, entries)
            chosen, seconds, failing = self.whole[entries]
            if only:
                chosen = f"{only}-{':'.join(failing)}"
            change()
            start = time.monotonic()
            if not self.make(program):
                return "stillborn", built + time.monotonic() - start, tested
            built += time.monotonic() - start
            start = time.monotonic()
            status, _ = self.test(entries, chosen, 3 * seconds + 10, 10 * seconds + 60)
            tested += time.monotonic() - start
            if status != 0:
                endless = status in (None, -signal.SIGKILL, -signal.SIGXCPU)
                return entries + (" (does not end)" if endless else ""), built, tested
        return "survived", built, tested


def mutate(judge, room, place):
    path, number, name, start, end, replacement = place
    original = path.read_text()

    def write(text):
        if path.read_text() != text:
            path.write_text(text)

    lines = original.split("\n")
    before = lines[number]
    lines[number] = before[:start] + replacement + before[end:]
    try:
        verdict, built, tested = judge.verdict(room, path, lambda: write("\n".join(lines)), lambda: write(original))
    finally:
        write(original)
    return {"room": room, "file": str(path), "line": number + 1, "change": name, "before": before.strip(),
            "after": lines[number].strip(), "verdict": verdict, "built": round(built, 1), "tested": round(tested, 1)}


def table(counted):
    lines = ["| folder | mutants | killed | share |", "|---|---:|---:|---:|"]
    for room in [*ROOMS, "all"]:
        of_room = [one for one in counted if room in (one["room"], "all")]
        killed = sum(one["verdict"] != "survived" for one in of_room)
        if of_room:
            lines.append(f"| {room} | {len(of_room)} | {killed} | {100 * killed / len(of_room):.0f} % |")
    return "\n".join(lines) + "\n"


def report(results, page):
    counted = [one for one in results if one["verdict"] != "stillborn"]
    print(table(counted))
    if page:
        old = re.compile(r"^\| folder \| mutants \|.*\n(?:\|.*\n)*", re.M)
        page.write_text(old.sub(table(counted), page.read_text()))
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
    parser.add_argument("--seconds", type=float, default=15, help="of the tests of a folder that run for each mutant")
    parser.add_argument("--page", type=pathlib.Path, help="writes the table in the place of that in this file")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # restores the file
    end = time.monotonic() + 60 * arguments.minutes
    rooms = arguments.rooms.split(",")
    results = [json.loads(line) for line in arguments.results.open()] if arguments.results.exists() else []
    mutants = choose(arguments.count, arguments.seed, rooms)
    judge = Judge(arguments.build, arguments.seconds, rooms) if arguments.minutes > 0 else None
    for room, place in mutants[len(results):]:
        if time.monotonic() >= end:
            break
        results.append({"number": len(results), **mutate(judge, room, place)})
        with arguments.results.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
    report(results, arguments.page)


if __name__ == "__main__":
    main()
