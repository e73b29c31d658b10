#!/bin/bash
# compute-sanitizer's four tools on small tests of every kind of kernel, side by side; three minutes.
#   FOLDER/sanitize.sh RESULTS      SECONDS_LEFT=170
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?"usage: $0 RESULTS (a folder)"}
mkdir -p "$out"
limit=${SECONDS_LEFT:-170}
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:/usr/local/nvidia/lib64:/usr/local/nvidia/lib
few='FewTokensInGroups/IntMatmulTest.*/1:TokensInGroups/IntMatmulTest.*/2:PairsOfGroups/*/0:Few/TileTest.*/2'
few=$few:'Generation/TensorAttention.IsNear*/1:Prompts/TensorAttention.IsNear*/1:ManyTokens/*/2:*Codes*/0'
few=$few:'Signed8/IntWgmmaTest.*/1:Shapes/Norm*/0:Sample.NamesTheFirst*'
few=$few:'Kinds/ExpertLinears*/0:AddExperts*:Shapes/Delta.Prompts*/0'
program=$here/cuda_device_tests
command -v compute-sanitizer > /dev/null || { echo "sanitize: compute-sanitizer is not on PATH" >&2; exit 1; }
count=$(timeout 60 "$program" --gtest_list_tests --gtest_filter="$few" 2> /dev/null | grep -c '^  ')
[ "$count" -gt 0 ] || { echo "sanitize: the filter selects no test" >&2; exit 1; }

one() { # TOOL OPTIONS...
  local tool=$1 log=$out/$1.log status
  shift
  timeout -k 5 "$limit" compute-sanitizer --tool "$tool" "$@" "$program" --gtest_filter="$few" > "$log" 2>&1
  status=$?
  echo "$tool: status $status, $(grep -cE '\[       OK' "$log") of $count tests, $(
    grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1)" | tee -a "$out/sanitize.txt"
  [ $status -eq 0 ] && ! grep -qE 'SUMMARY: [1-9]' "$log"
}
: > "$out/sanitize.txt"
one memcheck & tools=$!
one racecheck --racecheck-report all & tools="$tools $!"
one synccheck & tools="$tools $!"
one initcheck & tools="$tools $!"
result=0
for tool in $tools; do wait "$tool" || result=1; done
exit $result
