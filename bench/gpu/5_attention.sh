#!/bin/sh
# Attention of generation and of prompts, after 2_ceilings.sh.   bench/gpu/5_attention.sh FOLDER
. "$(dirname "$0")/common.sh"
table gpu_attention attention.md
