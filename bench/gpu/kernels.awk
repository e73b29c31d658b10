# From ncu's raw CSV (gpu__time_duration.sum, dram__bytes_read.sum): a Markdown table of kernels by
# their time in all, with launches, the median microseconds of one, and GB/s read.
function number(text) { gsub(/[",]/, "", text); return text + 0 }
function fields(line, out,   n, quoted, i, c, field) {
  n = 0; quoted = 0; field = ""
  for (i = 1; i <= length(line); ++i) {
    c = substr(line, i, 1)
    if (c == "\"") quoted = !quoted
    else if (c == "," && !quoted) { out[++n] = field; field = "" }
    else field = field c
  }
  out[++n] = field
  return n
}
!/^"/ { next }
!head {
  count = fields($0, names)
  for (i = 1; i <= count; ++i) column[names[i]] = i
  head = 1
  next
}
units == "" {
  fields($0, unit_of)
  time_unit = unit_of[column["gpu__time_duration.sum"]]
  byte_unit = unit_of[column["dram__bytes_read.sum"]]
  scale = time_unit ~ /^(ns|nsecond)/ ? 1e-3 : time_unit ~ /^(us|usecond)/ ? 1 : time_unit ~ /^(ms|msecond)/ ? 1e3 : 1e6
  bytes = byte_unit ~ /^K/ ? 1e3 : byte_unit ~ /^M/ ? 1e6 : byte_unit ~ /^G/ ? 1e9 : 1
  units = "read"
  next
}
{
  fields($0, cell)
  name = cell[column["Kernel Name"]] " " cell[column["Grid Size"]] " x " cell[column["Block Size"]]
  t = number(cell[column["gpu__time_duration.sum"]]) * scale
  launches[name] += 1
  times[name, launches[name]] = t
  total[name] += t
  read[name] += number(cell[column["dram__bytes_read.sum"]]) * bytes
  all += t
}
END {
  print "| kernel, grid x block | launches | median us | of the time | GB/s read |\n| --- | --- | --- | --- | --- |"
  fflush()
  for (name in total) {
    n = launches[name]
    for (i = 2; i <= n; ++i) {
      t = times[name, i]
      for (j = i - 1; j > 0 && times[name, j] > t; --j) times[name, j + 1] = times[name, j]
      times[name, j + 1] = t
    }
    printf "| %s | %d | %.2f | %.1f %% | %.0f |\n", name, n, times[name, int((n + 1) / 2)], 100 * total[name] / all, read[name] / total[name] * 1e-3 | "sort -t'|' -k5 -rn"
  }
  close("sort -t'|' -k5 -rn")
}
