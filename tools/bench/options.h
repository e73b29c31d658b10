// What leq-bench is asked for: its options, the tests and the settings they run in.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "eval/bench.h"
#include "format/leq_reader.h"
#include "tools/common/options.h"

namespace leq {

ToolSpec tool_spec();

// Throws Error where no test is left.
std::vector<BenchTest> tests_of(const Options& options);

// One combination of what is not a test.
struct RunSetting {
  int threads = 0;  // of all ranks
  int ranks = 1;
  std::int64_t batch_tokens = 0;
  std::optional<KvType> key_type, value_type;  // nullopt = the model's default
};
std::vector<RunSetting> settings_of(const Options& options);

LoadMode load_mode(const Options& options);

}  // namespace leq
