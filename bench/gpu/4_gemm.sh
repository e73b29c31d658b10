#!/bin/sh
# Many tokens times weights, beside cuBLASLt, after 2_ceilings.sh.   bench/gpu/4_gemm.sh FOLDER
. "$(dirname "$0")/common.sh"
table gpu_gemm gemm.md
