#!/bin/sh
# What the GPU does at most; the other tables give shares of it.   bench/gpu/2_ceilings.sh FOLDER
. "$(dirname "$0")/common.sh"
table gpu_ceilings ceilings.md
awk -F'|' '$2 ~ /_/ { gsub(/ /, "", $2); print $2, $3 }' "$out/ceilings.md" > "$ceilings"
