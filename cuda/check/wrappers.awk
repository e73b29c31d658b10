# Compares the PTX of wrappers.cu with wrappers.txt; one message for each difference.
#   awk -v arch=90a -f cuda/check/wrappers.awk cuda/check/wrappers.txt FILE.ptx
# Operands with registers and local names numbered in order of use; special registers such as
# %cluster_ctarank keep their names.
function operands(text,    out, word) {
  for (; text != ""; text = substr(text, RLENGTH + 1)) {
    if (match(text, /^%?[A-Za-z0-9_][A-Za-z0-9_.]*/)) {
      word = substr(text, 1, RLENGTH)
      if (word !~ /^%.*_|^_$|^[0-9]/) {
        if (!(word in number)) number[word] = numbers++
        word = "%" number[word]
      }
      out = out word
    } else if (match(text, /^[^ \t]/)) {
      out = out substr(text, 1, 1)
    } else {
      match(text, /^./)
    }
  }
  return out
}
# The instructions of a text, without declarations.
function instructions(text,    parts, count, i, one, values, all) {
  split("", number)
  numbers = 0
  count = split(text, parts, ";")
  for (i = 1; i <= count; ++i) {
    one = parts[i]
    sub(/^[ \t{}]+/, "", one)
    if (one == "" || one ~ /^\.reg/) continue
    values = match(one, /[ \t{\[]/) ? operands(substr(one, RSTART)) : ""
    sub(/[ \t{\[].*/, "", one)
    # The closing brace of a block of the kernel itself.
    if (gsub(/}/, "}", values) > gsub(/{/, "{", values)) values = substr(values, 1, length(values) - 1)
    all = all (all == "" ? "" : "; ") one " " values
  }
  return all == "" ? "(nothing)" : all
}
# %1..%4 -> %1,%2,%3,%4
function with_ranges(text,    ends, i, list) {
  while (match(text, /%[0-9]+\.\.%[0-9]+/)) {
    split(substr(text, RSTART + 1, RLENGTH - 1), ends, "..%")
    list = "%" ends[1]
    for (i = ends[1] + 1; i <= ends[2] + 0; ++i) list = list ",%" i
    text = substr(text, 1, RSTART - 1) list substr(text, RSTART + RLENGTH)
  }
  return text
}
function wrong(message) { print message; bad = 1 }
FNR == NR {
  if (/^#/) next
  from[$1] = $2
  text = $0
  sub(/^[^ ]+ +[^ ]+ +/, "", text)
  expected[$1] = text == "(nothing)" ? "" : with_ranges(text)
  next
}
/\.entry / {
  name = $0
  sub(/.*\.entry +/, "", name)
  sub(/\(.*/, "", name)
  inlined[name] = ""
}
/begin inline asm/ { inside = 1 }
/end inline asm/ { inside = 0 }
name != "" {
  sub(/\/\/.*/, "")
  all[name] = all[name] $0 "\n"
  if (inside) inlined[name] = inlined[name] $0 " "
}
END {
  for (kernel in expected) {
    if (!(kernel in inlined)) { wrong(kernel ": no such kernel in wrappers.cu"); continue }
    there = arch + 0 >= from[kernel] + 0 && (from[kernel] !~ /a$/ || arch ~ /a$/)
    wanted = instructions(there ? expected[kernel] : "")
    got = instructions(inlined[kernel])
    # An instruction from a compiler builtin is not inline assembly, so it is among all others.
    count = got == "(nothing)" && there ? split(all[kernel], lines, "\n") : 0
    for (i = 1; i <= count; ++i) if (instructions(lines[i]) == wanted) got = wanted
    if (got != wanted) wrong(kernel " for " arch ": " got "\n  expected " wanted)
  }
  for (kernel in inlined) if (!(kernel in expected)) wrong(kernel ": no line in wrappers.txt")
  exit bad
}
