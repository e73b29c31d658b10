# Reads PTX and prints, of each kernel, "Code of 'KERNEL' for 'ARCHITECTURE': FENCES DIVISIONS": memory
# fences of the whole GPU and integer divisions in its main loop. That is the range before a backward
# branch that has the most tensor-core instructions, or else the most dp4a, and no such loop within it;
# of several the shortest. Of a kernel without one, all loops count.
#   awk -v arch=90a -f cuda/check/loops.awk FILE.ptx
function work(line) { return tensor[n] > 0 ? tensor[line] : dp4a[line] }
function work_of(loop) { return work(last[loop]) - work(first[loop]) }
function has_inner(loop,    other) {
  for (other = 1; other <= loops; ++other)
    if (work_of(other) > 0 && first[loop] < first[other] && last[other] <= last[loop]) return 1
  return 0
}
function main_loop(    loop, best) {
  for (loop = 1; loop <= loops; ++loop) {
    if (work_of(loop) == 0 || has_inner(loop)) continue
    if (!best || work_of(loop) > work_of(best) ||
        (work_of(loop) == work_of(best) && last[loop] - first[loop] < last[best] - first[best])) best = loop
  }
  return best
}
function report(    main, loop, line, looped, fences, divisions) {
  main = main_loop()
  for (loop = 1; loop <= loops; ++loop)
    if (!main || loop == main) for (line = first[loop] + 1; line <= last[loop]; ++line) looped[line] = 1
  for (line in looped) {
    fences += fence[line]
    divisions += division[line]
  }
  printf "Code of '%s' for 'sm_%s': %d %d\n", name, arch, fences, divisions
}
/\.entry / {
  name = $0
  sub(/.*\.entry +/, "", name)
  sub(/\(.*/, "", name)
  n = loops = 0
  split("", label)
  inside = 1
}
/begin inline asm/ { inlined = 1 }
/end inline asm/ { inlined = 0 }
!inside { next }
/^}/ && !inlined {
  report()
  inside = 0
  next
}
/^\$L[A-Za-z0-9_]*:/ { label[substr($1, 1, index($1, ":") - 1)] = n }
{
  ++n
  tensor[n] = tensor[n - 1] + ($0 ~ /(^|[ \t{;])(mma\.sync|wgmma\.mma_async)/)
  dp4a[n] = dp4a[n - 1] + ($0 ~ /(^|[ \t{;])dp4a\./)
  fence[n] = $0 ~ /membar\.gl|\.(acq_rel|sc)\.gpu/
  division[n] = $0 ~ /(^|[ \t{;])(div|rem)\.[su](16|32|64)/
  if ($0 ~ /(^|[ \t])bra[. \t]/ && match($0, /\$L[A-Za-z0-9_]+/) && substr($0, RSTART, RLENGTH) in label) {
    first[++loops] = label[substr($0, RSTART, RLENGTH)]
    last[loops] = n
  }
}
