#include "tools/bench/breakdown.h"

#include <string>

namespace leq {
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
