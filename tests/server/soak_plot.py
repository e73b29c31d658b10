"""The samples of soak.py as a picture: soak_plot.py SAMPLES OUT.png"""

import json
import sys

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

ROWS = [
    ("resident memory, MB", [("resident_kb", 1 / 1024)]),
    ("descriptors", [("descriptors", 1)]),
    ("threads", [("threads", 1)]),
    ("reply time, ms", [("p50_ms", 1), ("p99_ms", 1)]),
    ("replies, thousands", [("answered", 1 / 1000)]),
]

with open(sys.argv[1], encoding="ascii") as lines:
    samples = [json.loads(line) for line in lines]
servers = list(dict.fromkeys(sample["server"] for sample in samples))
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
figure, axes = plt.subplots(len(ROWS), len(servers), figsize=(10, 9), sharex="col", sharey="row", squeeze=False)
for column, server in enumerate(servers):
    axes[0][column].set_title(server, fontsize=10)
    own = [sample for sample in samples if sample["server"] == server]
    own = own[::max(1, len(own) // 150)]
    for row, (label, lines) in enumerate(ROWS):
        axis = axes[row][column]
        for name, scale in lines:
            axis.plot([one["seconds"] / 60 for one in own], [one[name] * scale for one in own], linewidth=0.9,
                      label=name.removesuffix("_ms") if len(lines) > 1 else None)
        if column == 0:
            axis.set_ylabel(label)
        if len(lines) > 1:
            axis.set_yscale("log")
            axis.legend(frameon=False, fontsize=8)
        else:
            axis.set_ylim(0, 1.1 * scale * max(sample[name] for sample in samples))
    axes[-1][column].set_xlabel("minutes")
figure.tight_layout()
figure.savefig(sys.argv[2], dpi=80)
