#include "tools/bench/rank_plan.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "eval/rank_plan.h"
#include "eval/synthetic.h"
#include "model/open_model.h"
#include "tools/common/model_path.h"

namespace leq {
namespace {

// The properties of a model that a plan needs; its weights are not loaded.
struct ShapedModel {
  ModelConfig config;
  std::map<std::string, std::uint64_t, std::less<>> bytes;  // tensor name -> bytes
  ColumnBytes columns;

  void add(const StoredTensor& tensor) {
    bytes[tensor.name] = tensor.bytes();
    if (tensor.name == "layers.0.o") columns.o = exchanged_bytes(tensor.view);
    if (tensor.name == "layers.0.down") columns.down = exchanged_bytes(tensor.view);
  }
};

ShapedModel shaped(const std::string& name) {
  ShapedModel model;
  if (is_synthetic(name)) {
    const SyntheticSpec spec = parse_synthetic(name);
    model.config = synthetic_config(spec.shape, spec.layers);
    for (const StoredTensor& tensor : synthetic_layout(model.config, spec.type)) model.add(tensor);
    return model;
  }
  check_model_file("-m", name);
  const Model file(name, {.mode = LoadMode::map});
  model.config = file.config();
  for (const StoredTensor& tensor : file.file().tensors()) model.add(tensor);
  return model;
}

std::vector<std::int64_t> numbers_or(const Options& options, const char* name,
                                     std::vector<std::int64_t> usual) {
  return options.given(name) ? options.integers(name) : usual;
}

Row row_of(const std::string& model, const RankPlan& plan, const RankPlan& alone) {
  constexpr double kGiga = 1e9, kMilli = 1e3;
  const double ideal = alone.tokens_per_second() * plan.ranks;
  Row row = {{"model", model}, {"sequences", plan.sequences}, {"ranks", plan.ranks}};
  row.emplace_back("weights GB", Cell(static_cast<double>(plan.weight_bytes) / kGiga, 2));
  row.emplace_back("KV GB", Cell(static_cast<double>(plan.kv_bytes) / kGiga, 2));
  row.emplace_back("received MB", Cell(static_cast<double>(plan.received_bytes) / 1e6, 2));
  row.emplace_back("work ms", Cell(plan.work_seconds * kMilli, 2));
  row.emplace_back("exchange ms", Cell(plan.exchange_seconds * kMilli, 2));
  row.emplace_back("t/s", Cell(plan.tokens_per_second(), 0));
  row.emplace_back("efficiency %", Cell(100 * plan.tokens_per_second() / ideal, 0));
  row.emplace_back("all-reduce ms", Cell(plan.reduce_seconds * kMilli, 2));
  row.emplace_back("all-reduce t/s", Cell(plan.reduced_tokens_per_second(), 0));
  return row;
}

}  // namespace

Table rank_plan_table(const Options& options) {
  const std::vector<std::int64_t> depths = options.integers("n-depth");
  require(depths.size() == 1, "--tp-plan: -d: expected one depth, found ", depths.size());
  const RankMachine machine;
  Table table;
  for (const std::string& name : options.list("model")) {
    const ShapedModel model = shaped(name);
    const auto bytes_of = [&](std::string_view tensor) {
      const auto found = model.bytes.find(tensor);
      ensure(found != model.bytes.end(), "no tensor ", tensor);
      return found->second;
    };
    for (const std::int64_t sequences : numbers_or(options, "n-parallel", {1, 8, 64})) {
      const auto plan = [&](std::int64_t ranks) {
        return plan_ranks_on_paper(model.config, bytes_of, model.columns, static_cast<int>(ranks),
                                   sequences, depths[0], machine);
      };
      for (const std::int64_t ranks : numbers_or(options, "tp", {1, 2, 4, 8, 16})) {
        table.add(row_of(name, plan(ranks), plan(1)));
      }
    }
  }
  return table;
}

std::string rank_machine_text() {
  const RankMachine machine;
  return "on paper: memory " + fixed(machine.read_gbps, 0) + " GB/s, " +
         fixed(machine.tera_ops, 0) + " TOPS, nodes of " + std::to_string(machine.ranks_per_node) +
         " with links of " + fixed(machine.link_gbps, 0) + " GB/s and " +
         fixed(machine.link_microseconds, 0) + " us an exchange, a network of " +
         fixed(machine.network_gbps, 0) + " GB/s and " + fixed(machine.network_microseconds, 0) +
         " us";
}

}  // namespace leq
