// Options of leq-bench, and the tests and settings that they select.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "format/leq_reader.h"
#include "tools/bench/parts/speed.h"
#include "tools/common/options.h"

namespace leq {

ToolSpec tool_spec();

// Throws Error if no test is selected.
std::vector<BenchTest> tests_of(const Options& options);

// One combination of settings, with which all tests are run.
struct RunSetting {
  int threads = 0;  // sum over all ranks
  int ranks = 1;
  std::int64_t batch_tokens = 0;
  std::optional<KvType> key_type, value_type;  // nullopt = the model's default
};
std::vector<RunSetting> settings_of(const Options& options);

LoadMode load_mode(const Options& options);

}  // namespace leq
