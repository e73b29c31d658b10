#!/bin/bash
# bench/gpu/first.sh and sanitize.sh with stand-ins for the programs of the archive: what the
# summary says of a good run, of a hang, of a failing suite, of a machine without a driver; and
# that every filter selects tests which exist.
#   first_test.sh BUILD SOURCE
set -u
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
expect() { # FILE PATTERN
  grep -qE "$2" "$1" && return
  echo "FAILED: no line '$2' in $1:"
  cat "$1"
  wrong=1
}
program() { # FOLDER NAME, the script from standard input
  { echo '#!/bin/bash'; cat; } > "$1/$2"
  chmod +x "$1/$2"
}

# The tests of a device are those of the emulator by name.
pack=$work/pack
mkdir "$pack"
cp "$source"/bench/gpu/{first.sh,sanitize.sh,kernels.awk,torch_decode.py} "$pack"
for name in ptx_conformance gpu_agree gpu_ceilings gpu_gemv gpu_attention gpu_gemm gpu_layer leq-bench; do
  echo "echo $name ran" | program "$pack" $name
done
names() { echo "case \"\$*\" in *list_tests*) exec $1 \"\$@\" ;; esac"; }
{ names "$build/tests/cuda_sim_tests"; echo 'echo "[==========] 10 tests from 1 test suite ran."'; } |
  program "$pack" cuda_device_tests
# Tests of models are named after the devices that there are: cuda_0 there, sim here.
{
  echo 'arguments=("${@/cuda_/sim}")'
  echo "case \"\$*\" in *list_tests*) exec $build/tests/sim_model_tests \"\${arguments[@]}\" ;; esac"
} | program "$pack" sim_model_tests
{
  echo 'arguments=("${@/cuda_/sim}")'
  echo "case \"\$*\" in *list_tests*) exec $build/tests/conformance_tests \"\${arguments[@]}\" ;; esac"
} | program "$pack" conformance_tests
tools=$work/tools
mkdir "$tools"
echo 'echo "Driver Version: 580"' | program "$tools" nvidia-smi
program "$tools" ncu << 'END'
while [ "$1" != --log-file ]; do shift; done
cat > "$2" << 'CSV'
==PROF== Connected to process 7
"ID","Kernel Name","Block Size","Grid Size","dram__bytes_read.sum","gpu__time_duration.sum"
"","","","","Mbyte","ns"
"0","void int_gemv<8>(Arguments, int)","(256, 1, 1)","(64, 1, 1)","16.5","6,200"
"1","void int_gemv<8>(Arguments, int)","(256, 1, 1)","(64, 1, 1)","16.5","6,600"
"2","void int_gemv<8>(Arguments, int)","(256, 1, 1)","(64, 1, 1)","16.5","6,400"
"3","norm_rows(Arguments)","(256, 1, 1)","(1, 1, 1)","0.5","4,800"
CSV
END
echo 'case "$1" in -c) exit 0 ;; esac; echo "| bf16 | 1.0 |"' | program "$tools" python3
echo 'echo "ERROR SUMMARY: 0 errors"; shift 2; "${@: -2}" | sed "s/.*/[       OK ] a test/"' |
  program "$tools" compute-sanitizer
export PATH=$tools:$PATH

"$pack/first.sh" "$work/good" > /dev/null || { echo "FAILED: a good run has status $?"; wrong=1; }
expect "$work/good/summary.txt" 'tests wgmma \([1-9][0-9]*\): done'
expect "$work/good/summary.txt" 'tests layers \([1-9][0-9]*\): done'
expect "$work/good/summary.txt" 'tests models \([1-9][0-9]*\): done'
expect "$work/good/summary.txt" 'experts against each other at full size: done'
expect "$work/good/summary.txt" 'kernels of a token: done'
expect "$work/good/summary.txt" 'PyTorch: done'
# 3 x 16.5 MB in 19.2 us, and 80 % of 24 us.
expect "$work/good/profile.md" '^\| void int_gemv<8>\(Arguments, int\) \(64, 1, 1\) x \(256, 1, 1\) \| 3 \| 6.40 \| 80.0 % \| 2578 \|$'
expect "$work/good/profile.md" '^\| norm_rows.* \| 1 \| 4.80 \| 20.0 % \| 104 \|$'
expect "$work/good/summary.txt" '0 steps failed, [4-8] files'
"$pack/sanitize.sh" "$work/good_tools" > /dev/null || { echo "FAILED: sanitize.sh"; wrong=1; }
expect "$work/good_tools/sanitize.txt" 'racecheck: status 0, 1 of [1-9][0-9]* tests'

# A program that hangs, and a suite with a failing test, which runs again in three ways.
echo 'sleep 600' | program "$pack" gpu_agree
{
  names "$build/tests/cuda_sim_tests"
  echo 'case "$*" in *Wgmma*) echo "[ RUN      ] A.Hang"; sleep 600 ;; esac'
  echo 'case "$*" in *Norm*) echo "[  FAILED  ] Some.Test (3 ms)"; exit 1 ;; esac'
  echo 'case "$*" in *Some.Test*) echo "again, $LEQ_GPU_DEBUG"; exit 1 ;; esac'
} | program "$pack" cuda_device_tests
STEP_SECONDS=2 "$pack/first.sh" "$work/bad" > /dev/null && { echo "FAILED: a bad run has status 0"; wrong=1; }
expect "$work/bad/summary.txt" 'delta against each other at full size: CUT OFF after 2 s'
expect "$work/bad/summary.txt" 'tests wgmma .*: CUT OFF after 2 s: \[ RUN      \] A.Hang'
expect "$work/bad/summary.txt" 'tests rows .*: FAILED \(1\): \[  FAILED  \] Some.Test'
expect "$work/bad/tests.txt" 'Some.Test without early starts: status 1'
expect "$work/bad/tests.txt" 'again, no-early'
expect "$work/bad/summary.txt" 'many tokens: done'

# A filter that selects nothing.
echo 'true' | program "$pack" conformance_tests
STEP_SECONDS=2 "$pack/first.sh" "$work/none" > /dev/null
expect "$work/none/summary.txt" 'tests conformance: FAILED: the filter .* selects no test'

# No driver: every program says so, and none counts as done.
rm "$tools"/*
for name in ptx_conformance cuda_device_tests gpu_agree gpu_ceilings gpu_gemv leq-bench; do
  echo 'case "$*" in *list_tests*) echo "A."; echo "  B" ;; esac; echo "gpu: NOT RUN (no driver)"' |
    program "$pack" $name
done
STEP_SECONDS=2 "$pack/first.sh" "$work/none2" > /dev/null && { echo "FAILED: no driver has status 0"; wrong=1; }
expect "$work/none2/summary.txt" 'instructions: not run: gpu: NOT RUN \(no driver\)'
[ $wrong -eq 0 ] && echo "first.sh and sanitize.sh: as expected"
exit $wrong
