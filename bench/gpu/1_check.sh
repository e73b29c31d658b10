#!/bin/sh
# The first minutes on a GPU: builds for it, compares every instruction with its meaning, runs the
# tests of label gpu, and looks for bad accesses and races.   bench/gpu/1_check.sh FOLDER
. "$(dirname "$0")/common.sh"
result=0
report=$out/check.md
{
  echo "# Check"
  echo
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv 2> /dev/null ||
    echo "nvidia-smi: n/a"
  nvcc --version 2>&1 | tail -n 2 | head -n 1
  nproc | sed 's/$/ processors/'
  echo "commit $(git -C "$root" rev-parse --short HEAD 2> /dev/null || echo unknown)"
} > "$report"

start=$(date +%s)
configure
targets="ptx_conformance gpu_ceilings gpu_gemv gpu_gemm gpu_attention"
[ "$kind" = programs ] || targets="$targets leq-bench"
[ "$kind" = project ] && targets="$targets cuda_device_tests conformance_tests sim_model_tests"
# shellcheck disable=SC2086
make_targets $targets || result=1
printf '\nbuilt: %s, %s s\n' "$kind" "$(($(date +%s) - start))" >> "$report"

section() {
  printf '\n## %s\n\n' "$1" >> "$report"
  say "$1"
}

section "Instructions against their meaning"
timeout 120 "$(program ptx_conformance)" >> "$report" 2>&1 || result=1

section "Tests of label gpu"
if [ "$kind" = project ]; then
  timeout 300 ctest --test-dir "$built" -L gpu --output-on-failure > "$out/tests.log" 2>&1 || result=1
  grep -E 'Test +#|tests passed|FAILED|Failure|Skipped|NOT RUN' "$out/tests.log" >> "$report"
else
  echo "n/a: $(missing project)" >> "$report"
fi

# Small sizes: the tools make a kernel a hundred times slower.
small="-*Extreme*:Tails/*:Prefill/*:ManyTokens/*"
for tool in memcheck racecheck; do
  section "compute-sanitizer $tool"
  if [ "$kind" != project ]; then
    echo "n/a: the tests were not built" >> "$report"
  elif ! command -v compute-sanitizer > /dev/null; then
    echo "n/a: compute-sanitizer is not on PATH" >> "$report"
  else
    timeout 100 compute-sanitizer --tool $tool "$(program cuda_device_tests)" \
      --gtest_filter="$small" > "$out/$tool.log" 2>&1
    grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|FAILED|PASSED' "$out/$tool.log" >> "$report" ||
      echo "n/a: $(tail -n 1 "$out/$tool.log")" >> "$report"
    grep -qE 'ERROR SUMMARY: [1-9]|RACECHECK SUMMARY: [1-9]' "$out/$tool.log" && result=1
  fi
done
cat "$report"
exit $result
