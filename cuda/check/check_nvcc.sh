#!/bin/sh
# Compiles every CUDA source with nvcc and reads what comes out. No kernel may spill, have a stack frame, use more
# registers or static shared memory than its line in cuda/check/kernels.txt says, or be missing from it.
# No main loop, and of a kernel without dp4a and tensor cores no loop, may fence the memory of the whole
# GPU, or divide integers but where it says so below (loops.awk). On 9.0 the kernels of few tokens load
# weights before the wait for the previous kernel (early_loads.cpp). No function that launches a kernel may
# call device code on the host: nvcc compiles that to exit(1). No GPU is needed. The programs for machines
# with one (bench/gpu, tests/cuda/ptx) must compile too.
#   cuda/check/check_nvcc.sh             check, for 80, 90a and 120
#   cuda/check/check_nvcc.sh --update    write what was found into kernels.txt
#   cuda/check/check_nvcc.sh SOURCE...   the kernels of these alone
#   --all: for every architecture, of which 86, 89 and 100 have no registers in kernels.txt.
#   --unless-checked: nothing, where checked.txt says that all sources passed as they are now, with this nvcc.
#   LEQ_NVCC_ARCHITECTURES: for these.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v nvcc > /dev/null; then
  echo "nvcc: NOT RUN (no CUDA toolkit on PATH)"
  exit 0
fi
names="80 90a"
unless_checked=""
if nvcc --list-gpu-arch | grep -q compute_120; then names="$names 120"; fi  # 12.8 and newer
update=""
chosen=""
# At the edge of what a query sees, and at the end of a span; groups of other sizes than 128; places of
# packed codes in a page; what is done once for an embedding, an upload, or rows of a peer; experts' rows; sizes
# of loops over candidates.
may_divide="attention_tensor attention_spans attention_packed attention_packed_spans kv_quantize
  rope_append embed_rows pack_rows unpack_rows exchange_rows upload_codes
  group_rows sample_candidates sample_draw"
for option in "$@"; do
  case "$option" in
    --all) names="80 86 89 90a 100 120" ;;
    --update) update=yes ;;
    --unless-checked) unless_checked=yes ;;
    *.cu) chosen="$chosen $option" ;;
    *) echo "nvcc: unknown option $option; expected --all, --update or sources"; exit 1 ;;
  esac
done
names=${LEQ_NVCC_ARCHITECTURES:-$names}
kernels=$(echo cuda/kernels/*/*.cu cuda/device/*.cu)
programs=$(echo bench/gpu/*.cu bench/gpu/device/*.cu tests/cuda/ptx/*.cu)

# SHA-256 of what a check depends on: the compiler's version, this folder, and each of the project's files that the
# sources include. Its line in checked.txt names the architectures too.
state() {
  for source in cuda/check/known_loops.cu $kernels $programs; do
    nvcc -std=c++20 --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc -M "$source" 2> /dev/null || true
  done | tr -s ' :\\' '\n' | sed 's,^\./,,' |
    grep -E '^(cuda|src|bench|tests|families)/.*\.(cu|cuh|h|cpp|inc)$' | LC_ALL=C sort -u > "$work/read"
  { nvcc --version; sha256sum cuda/check/*.awk cuda/check/*.sh cuda/check/*.cpp cuda/check/kernels.txt \
      $kernels $programs $(cat "$work/read"); } |
    sha256sum | cut -d' ' -f1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
before=$(state)
if [ -n "$unless_checked" ] && [ -f cuda/check/checked.txt ]; then
  read -r checked checked_names < cuda/check/checked.txt
  for arch in $names; do
    case " $checked_names " in *" $arch "*) ;; *) checked="" ;; esac
  done
  if [ "$checked" = "$before" ]; then
    echo "nvcc: NOT RUN (nothing has changed since all sources passed: cuda/check/checked.txt)"
    exit 0
  fi
fi
: > "$work/early"
architectures=""
for arch in $names; do
  architectures="$architectures -gencode=arch=compute_$arch,code=sm_$arch"
done

"${CXX:-c++}" -std=c++20 -O1 cuda/check/early_loads.cpp -o "$work/early_loads"

# nvcc 13.0 compiles some functions of std on bits, among them std::popcount of 64 bits, to a constant without a
# warning. Other names than these therefore need a look at their machine code, then a place in this list.
awk -v names="abs array bit_cast byte clamp conditional_t copysign fabs fma function int8_t int16_t int32_t int64_t is_array_v isfinite max memcpy min
    numeric_limits size_t sqrt uint8_t uint16_t uint32_t uint64_t uintptr_t unique_ptr" '
  BEGIN { split(names, list, /[ \n]+/); for (i in list) allowed[list[i]] = 1 }
  {
    sub(/\/\/.*/, "")
    for (; match($0, /std::[a-z_0-9]+/); $0 = substr($0, RSTART + RLENGTH)) {
      name = substr($0, RSTART + 5, RLENGTH - 5)
      if (!(name in allowed)) { print "nvcc: " FILENAME ":" FNR ": std::" name " is not in the list of check_nvcc.sh"; bad = 1 }
    }
  }
  END { exit bad }' cuda/kernels/*.h cuda/kernels/*/*.* cuda/intrinsics/*.* src/base/float_math.h \
  src/backend/online_scale.h

# compile SOURCE: the compiler's report and the counts, with names for people, appended to $work/all
compile() {
  rm -rf "$work/keep"
  mkdir "$work/keep"
  # shellcheck disable=SC2086
  if ! nvcc -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc \
      $architectures -Xptxas -v --keep --keep-dir "$work/keep" -c "$1" -o "$work/object.o" \
      2> "$work/log"; then
    cat "$work/log" >&2
    echo "nvcc: $1 does not compile" >&2
    exit 1
  fi
  # ptxas says it in passing when it has to wait for a wgmma on its own account, or cannot move registers.
  if grep -E 'serialized|setmaxnreg|wait is injected' "$work/log"; then
    echo "nvcc: $1 loses speed" >&2
    exit 1
  fi
  if objdump -dr --no-show-raw-insn "$work/object.o" | c++filt |
      awk '/^[0-9a-f]+ <.*>:$/ { name = $0 } /R_X86_64_PLT32[\t ]+exit/ && name ~ /launch/ { print name; bad = 1 } END { exit !bad }'; then
    echo "nvcc: $1: a launch calls a function on the host that is __device__ alone" >&2
    exit 1
  fi
  for ptx in "$work"/keep/*.ptx; do
    # For a single architecture the name of the file does not contain it.
    arch=$(expr "$ptx" : '.*\.compute_\([0-9a-z]*\)\.ptx') || arch=$names
    awk -v arch="$arch" -f cuda/check/loops.awk "$ptx" >> "$work/log"
  done
  for cubin in "$work"/keep/*.cubin; do
    arch=$(expr "$cubin" : '.*\.compute_\([0-9a-z]*\)\.cubin') || arch=$names
    [ "$arch" != 90a ] || "$work/early_loads" "$cubin" | c++filt >> "$work/early"
  done
  c++filt < "$work/log"
}

# One line for each kernel and architecture: kernel, architecture, registers, bytes of stack frame and spills, of
# static shared memory, fences, divisions.
table() {
  sed -E 's/\(anonymous namespace\)::|leq::cuda::|_GLOBAL__N__[0-9a-z_]+:://g' | awk '
    function name(quoted) {
      sub(/^void /, "", quoted); sub(/\([^()]*\)$/, "", quoted); gsub(/ /, "", quoted)
      return quoted
    }
    { split($0, quoted, "\x27") }
    /Compiling entry function/ { key = name(quoted[2]) " " quoted[4] }
    /spill stores/ { spilled[key] = $1 + $5 + $9 }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers[key] = substr($0, RSTART + 5, RLENGTH - 5)
      shared[key] = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
    }
    /^Code of/ { code[name(quoted[2]) " " quoted[4]] = $(NF - 1) " " $NF }
    END { for (key in registers) print key, registers[key], spilled[key], shared[key], code[key] }
  ' | LC_ALL=C sort
}

compile cuda/check/known_loops.cu > "$work/known.all"
table < "$work/known.all" | awk '
  /^known_early / { next }
  $6 != 1 || $7 != 1 { print "nvcc: " $1 " " $2 ": counted " $6 " fences and " $7 " divisions, expected one each; see loops.awk"; bad = 1 }
  END { exit bad || NR == 0 }'
for source in ${chosen:-$kernels}; do
  compile "$source" >> "$work/all"
done
for source in $programs; do
  [ -z "$chosen" ] || continue
  case $source in
    *library_gemm*) [ -f "$(dirname "$(command -v nvcc)")/../include/cublasLt.h" ] || continue ;;
  esac
  # shellcheck disable=SC2086
  nvcc -std=c++20 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc $architectures \
    -c "$source" -o "$work/object.o" || { echo "nvcc: $source does not compile"; exit 1; }
done
# Of BITS-bit weights, int_gemv_groups and what joins it load BITS (8: 4) times 16 bytes before the wait, and int_gemv_tokens, of
# 4 and 8 bits, BITS / 2 times; super_gemv and `known_early` of known_loops.cu load twice.
awk -v expected="$(case " $names " in *" 90a "*) echo yes ;; esac)" -v chosen="$chosen" '
  /int_gemv_(groups|norm|rope)<|int_gemv_tokens<[48]|super_gemv(_norm)?<|known_early/ {
    least = 2
    if (match($0, /int_gemv_(groups|norm|rope|tokens)<[0-9]/)) {
      least = substr($0, RSTART + RLENGTH - 1, 1) / (/int_gemv_tokens|<8/ ? 2 : 1); ++found
    }
    if (/known_early/ ? $1 != 2 : $1 < least) { print "nvcc: " $0 " on 90a: " $1 " loads before its wait, expected " least; bad = 1 }
    ++known
  }
  END {
    if (expected && (!known || (!found && (chosen == "" || chosen ~ /int_gemv/)))) { print "nvcc: no loads before a wait were counted; see early_loads.cpp"; bad = 1 }
    exit bad
  }' "$work/early"
table < "$work/all" > "$work/found"
if [ -n "$update" ]; then
  { echo "# kernel; most registers on 80, 90a and 120; most bytes of static shared memory. Written by check_nvcc.sh --update."
    awk -v chosen="$chosen" '
      FILENAME == ARGV[1] {
        seen[$1] = 1; registers[$1 $2] = $3
        if ($5 > shared[$1]) shared[$1] = $5
        next
      }
      chosen != "" && !/^#/ && !($1 in seen) { print }
      END {
        for (key in seen)
          print key, registers[key "sm_80"], registers[key "sm_90a"], registers[key "sm_120"], shared[key] + 0
      }' "$work/found" cuda/check/kernels.txt | LC_ALL=C sort
  } > "$work/kernels"
  cp "$work/kernels" cuda/check/kernels.txt
fi
awk -v names="$names" -v chosen="$chosen" -v may_divide="$may_divide" '
  BEGIN {
    split(may_divide, list, " "); for (i in list) divides[list[i]] = 1
    split("sm_80 sm_90a sm_120", arch, " ")
  }
  FNR == NR {
    if (/^#/) next
    if (NF != 5) { print "nvcc: cuda/check/kernels.txt: " $1 " has " NF " fields, expected 5; write it again with --update"; bad = 1 }
    known[$1] = 1; shared[$1] = $5
    for (i = 1; i <= 3; ++i) most[$1 " " arch[i]] = $(1 + i)
    next
  }
  { key = $1 " " $2; seen[$1] = 1; family = $1; sub(/<.*/, "", family) }
  NF != 7 { print "nvcc: " key " has no PTX that loops.awk reads"; bad = 1 }
  # attention_packed_spans, which is exact and simple, adds the 16 sums of a register in a loop.
  $4 > 0 && family != "attention_packed_spans" { print "nvcc: " key " has " $4 " bytes of stack frame and spills"; bad = 1 }
  # exchange_rows fences after a timeout of its wait for a peer; PTX for 12.0 has that code inside the loop.
  $6 > 0 && family != "exchange_rows" { print "nvcc: " key " fences the memory of the whole GPU in a loop"; bad = 1 }
  $7 > 0 && !(family in divides) { print "nvcc: " key " divides integers in a loop"; bad = 1 }
  !($1 in known) { print "nvcc: " key " is not in cuda/check/kernels.txt (" $3 " registers)"; bad = 1; next }
  !(key in most) { next }
  $3 > most[key] { print "nvcc: " key " uses " $3 " registers, kernels.txt says " most[key]; bad = 1 }
  $5 > shared[$1] { print "nvcc: " key " has " $5 " bytes of static shared memory, kernels.txt says " shared[$1]; bad = 1 }
  END {
    if (chosen == "") for (key in known) if (!(key in seen)) { print "nvcc: " key " of cuda/check/kernels.txt was not compiled"; bad = 1 }
    exit bad
  }' cuda/check/kernels.txt "$work/found"
echo "nvcc: $(wc -l < "$work/found") kernels compiled: no stack frames or spills; registers and shared memory as in kernels.txt"
# An update has changed kernels.txt, which the next run reads.
if [ -z "$chosen" ] && [ "$before" = "$(state)" ]; then echo "$before $names" > cuda/check/checked.txt; fi
