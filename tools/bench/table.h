// The rows of leq-bench, in one format for readers and one for scripts.
#pragma once

#include <cstdint>
#include <string>

#include "base/table.h"
#include "tools/bench/parts/speed.h"

namespace leq {

struct BenchRow {
  std::string model;  // as typed
  std::string title;  // for display
  std::string scheme;
  std::uint64_t size_bytes = 0;
  std::int64_t parameters = 0;
  std::string backend;
  int threads = 0;
  int ranks = 1;
  std::int64_t batch_tokens = 0;
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  BenchTest test;
  int runs = 0;
  std::uint64_t bytes_per_token = 0;
  BenchNumbers numbers;
};

// Settings that differ between rows and therefore get columns.
struct BenchColumns {
  bool ranks = false;
  bool batch = false;
  bool kv_types = false;
};

std::string test_title(const BenchTest& test);  // "tg128 @ d4096"
// The columns of llama-bench, plus the share of the limit.
Row readable_row(const BenchRow& row, const BenchColumns& columns);
// model, scheme, threads, test, depth, tps, ...; docs/benchmarks.md lists all columns.
Row script_row(const BenchRow& row, const BenchColumns& columns);

// Adds a row of --breakdown for each part of a step, then `all parts`, `step` and `step, untimed`;
// each begins with the cells of `test` (model, backend, test). Milliseconds and bytes are per step.
void add_breakdown(const Row& test, const Breakdown& breakdown, bool as_text, Table& table);

}  // namespace leq
