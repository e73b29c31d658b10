#!/bin/bash
# bench/gpu/pack.sh with stand-ins for compilers: what is in the archive, that the scripts in it find
# their programs there, that it and the tree fit into what may travel, and what is refused.
#   pack_test.sh SOURCE
set -u
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
fail() { echo "FAILED: $*"; wrong=1; }

tools=$work/tools
mkdir "$tools"
tool() { # NAME, the script from standard input
  { echo '#!/bin/bash'; cat; } > "$tools/$1"
  chmod +x "$tools/$1"
}
: | tool nvcc
# Configured: the cache; built: a program that says its name, for each target.
tool cmake <<'END'
while [ $# -gt 0 ]; do
  case $1 in
    -B) folder=$2; shift ;;
    -DLEQ_CUDA_ARCHITECTURES=*) images=${1#*=} ;;
    --build) built=$2; shift ;;
    --target) shift; targets="$*"; break ;;
  esac
  shift
done
if [ -n "${built:-}" ]; then
  for target in $targets; do
    printf '#!/bin/bash\ncase "$*" in *list_tests*) echo A.; echo "  B" ;; *) echo "%s ran" ;; esac\n' "${target%_alone}" > "$built/${target%_alone}"
    chmod +x "$built/${target%_alone}"
  done
else
  mkdir -p "$folder"
  echo "LEQ_CUDA_ARCHITECTURES:STRING=$images" > "$folder/CMakeCache.txt"
fi
END
echo 'cp "$4" "$3"' | tool strip
echo 'echo "  NEEDED  libc.so.6"; [ -z "${ALSO_NEEDS:-}" ] || echo "  NEEDED  $ALSO_NEEDS"' | tool objdump
export PATH=$tools:$PATH LEQ_GPU_BUILD=$work/build

"$source/bench/gpu/pack.sh" "$work/out" > "$work/log" 2>&1 || { cat "$work/log"; fail "pack.sh has status $?"; }
grep -q 'for 90a-real' "$work/log" || fail "the architecture is not named"
mkdir "$work/there"
xz -dc "$work/out/pack.tar.xz" | tar xf - -C "$work/there" || fail "the archive does not open"
for file in first.sh sanitize.sh kernels.awk torch_decode.py commit.txt; do
  [ -s "$work/there/$file" ] || fail "the archive has no $file"
done
for script in first.sh sanitize.sh; do
  cmp -s "$source/bench/gpu/$script" "$work/there/$script" || fail "$script is not that of the tree"
done
# A program that is built must be one that CMake knows: by name, or by the folder of its sources.
for program in "$work"/build/*; do
  name=$(basename "$program")
  [ "$name" = CMakeCache.txt ] && continue
  grep -qw -- "$name" "$source/bench/gpu/CMakeLists.txt" "$source/tests/CMakeLists.txt" ||
    [ -d "$source/tests/${name%_tests}" ] || [ -d "$source/tools/${name#leq-}" ] || fail "no target $name"
  [ -x "$work/there/$name" ] || fail "the archive has no $name"
done
# The scripts run with what the archive has.
rm -f "$tools"/*
STEP_SECONDS=5 SECONDS_LEFT=120 "$work/there/first.sh" "$work/results" > "$work/first" 2>&1 ||
  { cat "$work/first"; fail "first.sh of the archive"; }
grep -hE 'not found|No such file' "$work/results"/* && fail "first.sh misses a program"
# What travels: the archive, by the most that pack.sh allows, and the tree. 64 MiB in all.
most=$(sed -n 's/^most_kib=.*:-\([0-9]*\)}$/\1/p' "$source/bench/gpu/pack.sh")
if tree=$(cd "$source" && git ls-files -z 2> /dev/null | xargs -0 du -cb | tail -n 1 | cut -f1) && [ "${tree:-0}" -gt 0 ]; then
  total=$((most + tree / 1024))
  [ "$total" -le 65536 ] || fail "the archive ($most KiB) and the tree ($((tree / 1024)) KiB) are more than 64 MiB"
  echo "tree $((tree / 1024)) KiB, archive at most $most KiB"
else
  echo "the tree's size: NOT RUN (no git checkout)"
fi

# Too large, and a library that the machine to come may lack.
: | tool nvcc
printf '#!/bin/bash\ncase "$*" in *--build*) ;; *) ;; esac\n' > "$tools/cmake"
chmod +x "$tools/cmake"
echo 'cp "$4" "$3"' | tool strip
echo 'echo "  NEEDED  ${ALSO_NEEDS:-libc.so.6}"' | tool objdump
LEQ_PACK_MOST_KIB=0 "$source/bench/gpu/pack.sh" "$work/small" > "$work/log" 2>&1 &&
  fail "an archive that is too large is not refused"
grep -q 'KiB of at most 0' "$work/log" || fail "the sizes are not named"
ALSO_NEEDS=libfoo.so.1 "$source/bench/gpu/pack.sh" "$work/needs" > "$work/log" 2>&1 &&
  fail "a missing library is not refused"
grep -q 'needs libfoo.so.1' "$work/log" || fail "the library is not named"
[ $wrong -eq 0 ] && echo "pack.sh: as expected"
exit $wrong
