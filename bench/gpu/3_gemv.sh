#!/bin/sh
# Few tokens times weights of 8 to 2 bits, after 2_ceilings.sh.   bench/gpu/3_gemv.sh FOLDER
. "$(dirname "$0")/common.sh"
table gpu_gemv gemv.md
