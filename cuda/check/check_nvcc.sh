#!/bin/sh
# Compiles every CUDA source with nvcc and holds what comes out against cuda/check/budgets.txt: no kernel
# may spill, use more registers, have another number of tensor-core instructions or a longer main loop
# (all of it, and the shortest and the longest way round it by their work) than its line there says, or be missing from it. No
# main loop, and of a kernel without dp4a and tensor cores no loop, may fence the memory of the whole GPU,
# or divide integers but where it says so below. No GPU
# is needed. The programs for machines with one (bench/gpu, tests/cuda/ptx) must compile too.
#   cuda/check/check_nvcc.sh             check
#   cuda/check/check_nvcc.sh --update    write what was found into budgets.txt
#   cuda/check/check_nvcc.sh SOURCE...   the kernels of these alone
#   --blocks: print the straight stretches of their main loops, to add up the way of certain flags
#   --all: for every architecture, not only 80, 90a and 120. LEQ_NVCC_ARCHITECTURES: for these.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v nvcc > /dev/null; then
  echo "nvcc: NOT RUN (no CUDA toolkit on PATH)"
  exit 0
fi
names="80 90a"
if nvcc --list-gpu-arch | grep -q compute_120; then names="$names 120"; fi  # 12.8 and newer
update=""
blocks=""
chosen=""
# At the edge of what a query sees, and at the end of a span; groups of other sizes than 128; places of
# packed codes in a page; what is done once for an embedding, an upload, or rows of a peer.
may_divide="attention_tensor attention_spans attention_packed attention_packed_spans kv_seal rotate_heads
  rope_append embed_rows pack_rows unpack_rows exchange_rows upload_codes"
for option in "$@"; do
  case "$option" in
    --all) names="80 86 89 90a 120" ;;
    --update) update=yes ;;
    --blocks) blocks=yes ;;
    *.cu) chosen="$chosen $option" ;;
    *) echo "nvcc: unknown option $option; expected --all, --update, --blocks or sources"; exit 1 ;;
  esac
done
names=${LEQ_NVCC_ARCHITECTURES:-$names}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
architectures=""
for arch in $names; do
  architectures="$architectures -gencode=arch=compute_$arch,code=sm_$arch"
done
"${CXX:-c++}" -std=c++20 -O1 cuda/check/sass_counts.cpp -o "$work/sass_counts"

# compile SOURCE: the compiler's report and the counts, with names for people, appended to $work/all
compile() {
  rm -rf "$work/keep"
  mkdir "$work/keep"
  # shellcheck disable=SC2086
  if ! nvcc -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc \
      $architectures -Xptxas -v --keep --keep-dir "$work/keep" -c "$1" -o "$work/object.o" \
      2> "$work/log"; then
    cat "$work/log"
    echo "nvcc: $1 does not compile"
    exit 1
  fi
  # ptxas says it in passing when it has to wait for a wgmma on its own account, or cannot move registers.
  if grep -E 'serialized|setmaxnreg|wait is injected' "$work/log"; then
    echo "nvcc: $1 loses speed"
    exit 1
  fi
  for cubin in "$work"/keep/*.cubin; do
    # Of one architecture alone the name does not tell it.
    arch=$(expr "$cubin" : '.*\.compute_\([0-9a-z]*\)\.cubin') || arch=$names
    "$work/sass_counts" "$arch" "$cubin" >> "$work/log"
  done
  c++filt < "$work/log"
}

# One line for each kernel and architecture: kernel, architecture, registers, bytes spilled,
# tensor-core instructions; of its main loop the instructions, those of the shortest and the longest way
# round it and the work among them, fences and divisions.
table() {
  sed -E 's/\(anonymous namespace\)::|leq::cuda::|_GLOBAL__N__[0-9a-z_]+:://g' | awk '
    function name(quoted) {
      sub(/^void /, "", quoted); sub(/\([^()]*\)$/, "", quoted); gsub(/ /, "", quoted)
      return quoted
    }
    { split($0, quoted, "\x27") }
    /Compiling entry function/ { key = name(quoted[2]) " " quoted[4] }
    /spill stores/ { spilled[key] = $5 + $9 }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers[key] = substr($0, RSTART + 5, RLENGTH - 5)
    }
    /^Code of/ {
      code[name(quoted[2]) " " quoted[4]] = $(NF - 6) " " $(NF - 5) " " $(NF - 4) " " $(NF - 3) " " $(NF - 2) " " $(NF - 1) " " $NF
    }
    END { for (key in registers) print key, registers[key], spilled[key], code[key] }
  ' | LC_ALL=C sort
}

compile cuda/check/known_counts.cu > "$work/known.all"
table < "$work/known.all" | awk '
  /^looped/ {
    if ($6 == 0 || $7 == 0 || $7 >= $8 || $8 > $6 || $9 != 1 || $10 == 0 || $11 == 0) { print "nvcc: " $1 " " $2 ": its loop, ways, fence and division were not found; look at cuda/check/sass_counts.cpp"; bad = 1 }
    next
  }
  /^plain/ {
    if ($6 != 0 || $10 != 1 || $11 == 0) { print "nvcc: " $1 " " $2 ": the fence and the division of a loop without work were not found; look at leads_to in cuda/check/sass_counts.cpp"; bad = 1 }
    next
  }
  /^apart/ {
    if ($7 + 20 > $8 || $8 != $6) { print "nvcc: " $1 " " $2 ": of " $6 " instructions the longest way has " $8 ", the shortest " $7 "; look at kMayPart in cuda/check/sass_counts.cpp"; bad = 1 }
    next
  }
  /^together/ && $9 != $5 { print "nvcc: " $1 " " $2 ": its loop was not found; look at kBranches in cuda/check/sass_counts.cpp"; bad = 1 }
  { split($1, part, "_"); expected = part[2] ~ /gmma/ && $2 != "sm_90a" ? 0 : part[part[3] == "" ? 2 : 3] }
  $5 != expected { print "nvcc: " $1 " " $2 ": counted " $5 " tensor-core instructions, expected " expected "; look at kTensorCores in cuda/check/sass_counts.cpp"; bad = 1 }
  END { exit bad || NR == 0 }'
for source in ${chosen:-cuda/kernels/*/*.cu cuda/device/*.cu}; do
  compile "$source" >> "$work/all"
done
for source in bench/gpu/device/*.cu tests/cuda/ptx/*.cu; do
  [ -z "$chosen" ] || continue
  case $source in
    *library_gemm*) [ -f "$(dirname "$(command -v nvcc)")/../include/cublasLt.h" ] || continue ;;
  esac
  # shellcheck disable=SC2086
  nvcc -std=c++20 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc $architectures \
    -c "$source" -o "$work/object.o" || { echo "nvcc: $source does not compile"; exit 1; }
done
table < "$work/all" > "$work/found"
if [ -n "$blocks" ]; then grep '^Block of' "$work/all"; fi
if [ -n "$update" ]; then
  { echo "# kernel, architecture, most registers, tensor-core instructions, most instructions of the main loop"
    echo "# and of the shortest and the longest way round it, their dp4a or tensor-core instructions (none: 0); cuda/check/check_nvcc.sh --update --all writes it; spills are refused"
    awk -v chosen="$chosen" '
      FILENAME == ARGV[1] { line[$1 " " $2] = $1 " " $2 " " $3 ($5 + $6 > 0 ? " " $5 : "") ($6 > 0 ? " " $6 " " $7 " " $8 " " $9 : ""); next }
      chosen != "" && !/^#/ && !($1 " " $2 in line) { line[$1 " " $2] = $0 }
      END { for (key in line) print line[key] }' "$work/found" cuda/check/budgets.txt | LC_ALL=C sort
  } > "$work/budgets"
  cp "$work/budgets" cuda/check/budgets.txt
fi
awk -v names="$names" -v chosen="$chosen" -v may_divide="$may_divide" '
  BEGIN {
    split(names, list, " "); for (i in list) compiled["sm_" list[i]] = 1
    split(may_divide, list, " "); for (i in list) divides[list[i]] = 1
  }
  FNR == NR && $0 !~ /^#/ && NF != 3 && NF != 4 && NF != 8 { print "nvcc: cuda/check/budgets.txt: " $1 " " $2 " has " NF " fields, expected 3, 4 or 8: an old line; write it again with --update --all SOURCE"; bad = 1 }
  FNR == NR { if ($0 !~ /^#/ && $2 in compiled) { budget[$1 " " $2] = $3; tensor[$1 " " $2] = $4 + 0; loop[$1 " " $2] = $5 + 0; least[$1 " " $2] = $6 + 0; most[$1 " " $2] = $7 + 0; work[$1 " " $2] = $8 + 0 } next }
  { key = $1 " " $2; seen[key] = 1 }
  $4 > 0 { print "nvcc: " key " spills " $4 " bytes"; bad = 1 }
  !(key in budget) { print "nvcc: " key " is not in cuda/check/budgets.txt (" $3 " registers, " $5 " tensor-core instructions)"; bad = 1; next }
  $3 > budget[key] { print "nvcc: " key " uses " $3 " registers, the budget is " budget[key]; bad = 1 }
  $6 > loop[key] { print "nvcc: " key " has a main loop of " $6 " instructions, the budget is " loop[key]; bad = 1 }
  $7 * work[key] > least[key] * $9 { print "nvcc: " key " takes " $7 " instructions at least for " $9 " of its work, the budget is " least[key] " for " work[key]; bad = 1 }
  $8 * work[key] > most[key] * $9 { print "nvcc: " key " takes " $8 " instructions at most for " $9 " of its work, the budget is " most[key] " for " work[key]; bad = 1 }
  $10 > 0 { print "nvcc: " key " fences the memory of the whole GPU in a loop"; bad = 1 }
  { family = $1; sub(/<.*/, "", family) }
  $11 > 0 && !(family in divides) { print "nvcc: " key " divides integers in a loop"; bad = 1 }
  $5 != tensor[key] { print "nvcc: " key " has " $5 " tensor-core instructions, the budget says " tensor[key]; bad = 1 }
  END {
    if (chosen == "") for (key in budget) if (!(key in seen)) { print "nvcc: " key " of cuda/check/budgets.txt was not compiled"; bad = 1 }
    exit bad
  }' cuda/check/budgets.txt "$work/found"
echo "nvcc: $(wc -l < "$work/found") kernels compiled, no spills, registers, tensor-core instructions and main loops as budgeted"
