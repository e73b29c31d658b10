"""Fuzzing in pieces that add up: runs each target in turn and keeps counts and corpora between runs.

    campaign.py BUILD STATE [--seconds 60] [--rounds 1] [--goal 10000000] [--longest 16384] [TARGET...]

BUILD is a build folder with the fuzzers (`cmake --preset fuzz`), STATE a folder for corpus/TARGET, faults/ and
counts.json. Without sanitizers (`cmake --preset fuzz -B build/fast -DLEQ_SANITIZE=`) there are two to six times as many
executions; the corpora that they find are for a last run with sanitizers. Targets with the fewest executions run first;
those that have reached --goal are left out. Prints a Markdown table of executions, covered edges, corpus and faults;
--rounds 0 --page bench/results/robustness.md only writes the counts there. A fault (crash, time out, memory) is kept in
STATE/faults, and its target is left out until the file is removed.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def read_counts(path):
    return json.loads(path.read_text()) if path.exists() else {}


# Stacks of allocations and a large quarantine take a tenth of the time, the energy of inputs by rare features a third;
# a fault that was kept is run again with the defaults.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "malloc_context_size=0:quarantine_size_mb=16"}


def faults_of(state, target):
    return sorted((state / "faults").glob(f"{target}-*"))


def run(program, state, seconds, longest):
    """One run of a target on a copy of its corpus in memory: (executions, edges covered)."""
    target = program.name
    corpus = state / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    (state / "faults").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        copy = shutil.copytree(corpus, pathlib.Path(memory, target))
        result = fuzz(program, state, copy, seconds, longest)
        shutil.copytree(copy, corpus.with_suffix(".new"), dirs_exist_ok=True)  # may be there from a run that was killed
    shutil.rmtree(corpus)
    corpus.with_suffix(".new").rename(corpus)
    said = result.stderr
    runs = re.search(r"stat::number_of_executed_units: (\d+)", said)
    edges = [int(found) for found in re.findall(r"cov: (\d+)", said)]
    if result.returncode != 0:
        print(f"{target}: status {result.returncode}\n" + "\n".join(said.splitlines()[-40:]), file=sys.stderr)
    return int(runs[1]) if runs else 0, max(edges, default=0)


def fuzz(program, state, corpus, seconds, longest):
    return subprocess.run(
        [program, corpus, f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-timeout=600", "-report_slow_units=600",
         f"-max_len={longest}", "-print_final_stats=1", "-print_funcs=0", "-reload=0", "-entropic=0",
         f"-artifact_prefix={state}/faults/{program.name}-"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, errors="replace", env=ENVIRONMENT)


def minimize(program, state):
    """Replaces a corpus by the part of it that covers as much."""
    corpus = state / "corpus" / program.name
    merged = corpus.with_suffix(".merged")
    shutil.rmtree(merged, ignore_errors=True)  # of a run that was killed
    merged.mkdir()
    merge = [program, "-merge=1", "-rss_limit_mb=4096", merged, corpus]
    if subprocess.run(merge, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode == 0:
        corpus.rename(corpus.with_suffix(".old"))
        merged.rename(corpus)
        merged = corpus.with_suffix(".old")
    subprocess.run(["rm", "-r", merged], check=True)


def table(counts, state):
    print("| target | executions | edges | corpus, files | faults |\n|---|---:|---:|---:|---:|")
    for target in sorted(counts):
        files = sum(1 for _ in (state / "corpus" / target).glob("*"))
        one = counts[target]
        print(f"| {target} | {one['runs']:,} | {one['edges']:,} | {files:,} | {len(faults_of(state, target))} |")
    print(f"| all | {sum(one['runs'] for one in counts.values()):,} | | | |")


def write_page(counts, page):
    """Replaces the executions and edges in the rows of the page's table."""
    text = page.read_text()
    for target, one in counts.items():
        name = target.removeprefix("fuzz_")
        text = re.sub(rf"^(\| {name} \|[^|]*\|)[^|]*\|[^|]*\|", rf"\1 {one['runs']:,} | {one['edges']:,} |", text,
                      flags=re.M)
    total = sum(one["runs"] for one in counts.values())
    page.write_text(re.sub(r"^\| all \| \|[^|]*\|", f"| all | | {total:,} |", text, flags=re.M))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("state", type=pathlib.Path)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="of each run")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each target")
    parser.add_argument("--goal", type=int, default=10_000_000, help="executions of each target")
    parser.add_argument("--longest", type=int, default=16384, help="bytes of an input")
    parser.add_argument("--page", type=pathlib.Path)
    arguments = parser.parse_intermixed_args()
    state, path = arguments.state, arguments.state / "counts.json"
    programs = {program.name: program for program in (arguments.build / "tests" / "fuzz").glob("fuzz_*")
                if program.is_file()}
    if not programs:
        sys.exit(f"{arguments.build}/tests/fuzz: no fuzzers")
    for _ in range(arguments.rounds):
        counts = read_counts(path)
        for target in sorted(arguments.targets or programs, key=lambda t: counts.get(t, {}).get("runs", 0)):
            if counts.get(target, {}).get("runs", 0) >= arguments.goal or faults_of(state, target):
                continue
            runs, edges = run(programs[target], state, arguments.seconds, arguments.longest)
            files = sum(1 for _ in (state / "corpus" / target).glob("*"))
            counts = read_counts(path)  # another process may have run other targets
            one = counts.setdefault(target, {"runs": 0, "edges": 0, "merged": 500})
            one["runs"] += runs
            one["edges"] = edges or one["edges"]  # of this build: with other flags the same code has others
            if files > 2 * one["merged"]:
                minimize(programs[target], state)
                one["merged"] = max(500, sum(1 for _ in (state / "corpus" / target).glob("*")))
            path.write_text(json.dumps(counts, indent=1))
    table(read_counts(path), state)
    if arguments.page:
        write_page(read_counts(path), arguments.page)


if __name__ == "__main__":
    main()
