#include "tools/bench/table.h"

#include "base/text.h"

namespace leq {
namespace {

std::string in_billions(std::int64_t parameters) {
  const double millions = static_cast<double>(parameters) / 1e6;
  return millions < 1000 ? fixed(millions, 1) + " M" : fixed(millions / 1e3, 2) + " B";
}

std::string in_gibibytes(std::uint64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? fixed(mebibytes, 1) + " MiB" : fixed(mebibytes / 1024, 2) + " GiB";
}

// Returns the speed in the unit of its limit, such as "31.2 of 33.4 GB/s read".
std::string against_limit(const BenchRow& row) {
  const BenchNumbers& numbers = row.numbers;
  if (numbers.limit == 0) return "n/a";
  if (row.test.generated == 0) {
    return fixed(numbers.gops, 0) + " of " + fixed(numbers.limit, 0) + " GOPS " +
           numbers.limit_kind;
  }
  if (row.test.prompt == 0 && row.test.sequences == 1) {
    return fixed(numbers.gbps, 1) + " of " + fixed(numbers.limit, 1) + " GB/s " +
           numbers.limit_kind;
  }
  return fixed(numbers.tps, 1) + " of " + fixed(numbers.limit, 1) + " t/s";
}

void add_settings(const BenchRow& row, const BenchColumns& columns, Row& cells) {
  if (columns.ranks) cells.emplace_back("ranks", row.ranks);
  if (columns.batch) cells.emplace_back("n_batch", row.batch_tokens);
  if (!columns.kv_types) return;
  cells.emplace_back("type_k", std::string(kv_type_name(row.key_type)));
  cells.emplace_back("type_v", std::string(kv_type_name(row.value_type)));
}

}  // namespace

std::string test_title(const BenchTest& test) {
  const std::string name = bench_test_name(test);
  return test.depth > 0 ? name + " @ d" + std::to_string(test.depth) : name;
}

Row readable_row(const BenchRow& row, const BenchColumns& columns) {
  Row cells = {{"model", row.title},
               {"size", in_gibibytes(row.size_bytes)},
               {"params", in_billions(row.parameters)},
               {"backend", row.backend},
               {"threads", row.threads}};
  add_settings(row, columns, cells);
  cells.emplace_back("test", test_title(row.test));
  cells.emplace_back("t/s", Cell(row.numbers.tps, 2));
  cells.emplace_back("min..max",
                     fixed(row.numbers.tps_min, 2) + ".." + fixed(row.numbers.tps_max, 2));
  cells.emplace_back("against the limit", against_limit(row));
  const bool known = row.numbers.limit > 0;
  cells.emplace_back("share %", known ? Cell(100 * row.numbers.share, 1) : Cell());
  return cells;
}

Row script_row(const BenchRow& row, const BenchColumns& columns) {
  const BenchNumbers& numbers = row.numbers;
  const bool known = numbers.limit > 0;
  Row cells = {{"model", row.model},
               {"scheme", row.scheme},
               {"threads", row.threads},
               {"test", bench_test_name(row.test)},
               {"depth", row.test.depth},
               {"sequences", row.test.sequences},
               {"tps", Cell(numbers.tps, 2)},
               {"tps_min", Cell(numbers.tps_min, 2)},
               {"tps_max", Cell(numbers.tps_max, 2)},
               {"runs", row.runs},
               {"bytes_per_token", static_cast<std::int64_t>(row.bytes_per_token)},
               {"gbps", Cell(numbers.gbps, 2)},
               {"gops", Cell(numbers.gops, 1)},
               {"limit_kind", numbers.limit_kind},
               {"limit", known ? Cell(numbers.limit, 1) : Cell()},
               {"share", known ? Cell(numbers.share, 4) : Cell()}};
  add_settings(row, columns, cells);
  return cells;
}

namespace {

class PartRows {
 public:
  PartRows(const Row& test, double step_seconds, bool as_text, Table& table)
      : test_(test), step_seconds_(step_seconds), as_text_(as_text), table_(table) {}

  void add(std::string_view name, double seconds) { table_.add(row(name, seconds)); }
  void add(std::string_view name, const PartTimes& part) {
    Row cells = row(name, part.seconds);
    const auto bytes = static_cast<double>(part.bytes);
    cells.emplace_back("operations", part.operations);
    cells.emplace_back(as_text_ ? "MB" : "bytes",
                       as_text_ ? Cell(bytes / 1e6, 3) : Cell(static_cast<std::int64_t>(bytes)));
    cells.emplace_back(as_text_ ? "GB/s" : "gbps", part.seconds > 0 && part.bytes > 0
                                                       ? Cell(bytes / 1e9 / part.seconds, 1)
                                                       : Cell());
    table_.add(cells);
  }

 private:
  Row row(std::string_view name, double seconds) const {
    Row cells = test_;
    const double share = seconds / step_seconds_;
    cells.emplace_back("part", std::string(name));
    cells.emplace_back("ms", Cell(1e3 * seconds, 3));
    cells.emplace_back(as_text_ ? "share %" : "share",
                       as_text_ ? Cell(100 * share, 1) : Cell(share, 4));
    return cells;
  }

  const Row& test_;
  double step_seconds_;
  bool as_text_;
  Table& table_;
};

}  // namespace

void add_breakdown(const Row& test, const Breakdown& breakdown, bool as_text, Table& table) {
  PartRows rows(test, breakdown.step_seconds, as_text, table);
  double sum = 0;
  for (std::size_t i = 0; i < kStepPartNames.size(); ++i) {
    const bool is_there =
        i != static_cast<std::size_t>(StepPart::delta) || breakdown.times.parts[i].operations > 0;
    if (is_there) rows.add(kStepPartNames[i], breakdown.times.parts[i]);
    sum += breakdown.times.parts[i].seconds;
  }
  rows.add("all parts", sum);
  rows.add("step", breakdown.step_seconds);
  rows.add("step, untimed", breakdown.plain_seconds);
}

}  // namespace leq
