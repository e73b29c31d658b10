#!/usr/bin/env python3
"""Reads the same bytes with leq and with another program, and explains each difference.

    differential.py ANSWERS [--cases 2000] [--seed 1] [--kind KIND]... [--keep FOLDER]

ANSWERS is the program differential_answers. `inputs.py` makes the cases of a kind from a seed, `peers.py` has the other
program of each kind and the table of the differences that are meant. A difference that is in no row of the table is
printed with its case and, with --keep, written into FOLDER; then the exit status is 1. Prints a table of counts.
"""

import argparse
import collections
import importlib.util
import json
import pathlib
import subprocess
import sys

PACKAGES = ["gguf", "h11", "jinja2", "jsonschema", "safetensors", "tokenizers"]
missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
if missing:
    print("SKIPPED: needs", ", ".join(missing), "(tests/python/requirements.txt)")
    sys.exit(77)

import inputs  # noqa: E402
import peers  # noqa: E402


def ask(program, cases):
    """leq's answers to all cases."""
    lines = "".join(json.dumps({**case, "bytes": case["bytes"].hex()}) + "\n" for case in cases)
    result = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=False)
    answers = [json.loads(line, object_pairs_hook=peers.members) for line in result.stdout.splitlines()]
    if result.returncode != 0 or len(answers) != len(cases):
        sys.exit(f"{program}: status {result.returncode} at case {cases[len(answers)]}")
    return [dict(answer.pairs) for answer in answers]


def explain(kind, case, leq):
    """How the two answers relate: "equal", "both refuse", a reason of the kind's table, or None."""
    peer = peers.answer(kind, case)
    if "refused" in leq and "refused" in peer:
        return "both refuse", peer
    if "value" in leq and "value" in peer and peers.is_same(kind, case, leq["value"], peer["value"]):
        return "equal", peer
    for reason, applies in kind.accepted:
        if applies(case, leq, peer):
            return reason, peer
    return None, peer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=2000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(peers.KINDS))
    parser.add_argument("--keep", type=pathlib.Path, help="folder for cases that are not explained")
    arguments = parser.parse_args()
    unexplained = 0
    print("| kind | peer | what both do | cases |\n|---|---|---|---:|")
    for name in arguments.kind or peers.KINDS:
        kind, counts = peers.KINDS[name], collections.Counter()
        cases = inputs.cases(name, arguments.seed, arguments.cases // kind.cost)
        for number, (case, leq) in enumerate(zip(cases, ask(arguments.program, cases))):
            reason, peer = explain(kind, case, leq)
            counts[reason or "NOT EXPLAINED"] += 1
            if reason is not None:
                continue
            unexplained += 1
            if arguments.keep:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                (arguments.keep / f"{name}-{arguments.seed}-{number}").write_bytes(case["bytes"])
            if counts["NOT EXPLAINED"] <= 20:
                shown = {key: case[key] for key in ("bytes", "documents", "texts") if key in case}
                for line in (f"{name} {number}: {shown}", f"  leq: {leq}", f"  {kind.peer}: {peer}"):
                    print(line[:1500], file=sys.stderr)
        for reason, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            print(f"| {name} | {kind.peer} | {reason} | {count:,} |")
        if counts["equal"] == 0:
            sys.exit(f"{name}: no case was read by both")
    sys.exit(unexplained > 0)


if __name__ == "__main__":
    main()
