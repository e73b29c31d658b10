"""bench/server_load.py on a leq-server: it counts what the server wrote, and ends with an error where
the server refuses."""

import json
import subprocess
import sys

from served import SOURCE, Served, check


def load(url, *flags):
    return subprocess.run([sys.executable, SOURCE / "bench/server_load.py", url, "-p", "40", "-n", "24",
                           "--vocabulary", "1500", "-o", "json", *flags],
                          capture_output=True, text=True, timeout=120)


with Served(sys.argv[1], "-np", "4", "-c", "4096", "--api-key", "k") as served:
    ran = load(served.url, "--api-key", "k", "--clients", "1,6", "--requests", "2",
               "--long-prompt", "200", "--long-every", "0")
    check(ran.returncode == 0, f"a load ends well: {ran.stderr}")
    rows = json.loads(ran.stdout)
    check([row["clients"] for row in rows] == [1, 6], "a row for each number of clients")
    for row in rows:
        tokens = row["clients"] * 2 * 24
        check(abs(row["tokens_per_second"] * row["seconds"] - tokens) < 1e-6 * tokens,
              f"all {tokens} tokens are counted")
        check(0 < row["first_ms_p50"] <= row["first_ms_p99"] <= 1e3 * row["seconds"], "first tokens")
        check(0 <= row["between_ms_p50"] <= row["between_ms_p99"] <= row["between_ms_max"], "gaps")
    check(rows[1]["long_prompts"] > 0, "long prompts came among them")
    refused = load(served.url, "--clients", "1")
    check(refused.returncode == 1 and "status 401" in refused.stderr, "a refusal is an error")
