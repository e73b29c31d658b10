# leq.h without comments to a C program that prints its ABI: sizes and offsets of structs, values of
# constants.
BEGIN {
  print "#include <leq.h>\n#include <stdio.h>\nint main(void) {"
}
/^typedef struct [a-z_]+ \{/ {
  type = $3
  printf "  printf(\"struct %s %%zu\\n\", sizeof(%s));\n", type, type
  next
}
/^\} [a-z_]+;/ { type = "" }
type != "" {
  sub(/;.*/, "")
  count = split($0, names, ",")
  for (i = 1; i <= count; ++i) {
    name = names[i]
    sub(/\[.*/, "", name)
    gsub(/.*[ *]/, "", name)
    printf "  printf(\"  %s %%zu %%zu\\n\", offsetof(%s, %s), sizeof(((%s*)0)->%s));\n", name, type, name, type, name
  }
}
{
  rest = $0
  while (match(rest, /LEQ_[A-Z_0-9]+ = /)) {
    name = substr(rest, RSTART, RLENGTH - 3)
    printf "  printf(\"value %s %%d\\n\", (int)%s);\n", name, name
    rest = substr(rest, RSTART + RLENGTH)
  }
}
END { print "  return 0;\n}" }
