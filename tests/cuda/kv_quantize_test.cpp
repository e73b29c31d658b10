// Tests which blocks a step encodes in each of its two launches: blocks that were complete before
// the step, and blocks that it completes. Expected blocks follow from which codes a query reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/half.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/gpu_layout.h"
#include "cuda/layout/kv_codes.h"
#include "device_memory.h"
#include "kv_numbers.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kKvHeads = 2, kDims = 32, kPositions = 256;
constexpr std::byte kJunk{0xff};

std::vector<std::byte> random_halves(std::size_t bytes) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<std::byte> made(bytes);
  for (std::size_t at = 0; at < bytes; at += 2) {
    const std::uint16_t half = f32_to_f16(normal(random));
    std::memcpy(made.data() + at, &half, 2);
  }
  return made;
}

struct Types {
  KvType keys, values;
};
constexpr Types kTypes[] = {{KvType::simq4, KvType::simq4}};

using Steps = std::vector<std::pair<int, int>>;
constexpr int kPages = kPositions / 64;

// Returns the keys of the second head in each page, in a file's layout, after a launch with one run
// for each sequence; the f16 copies contain `numbers`.
std::vector<std::vector<std::byte>> keys_after(const Types& types, const KvResidual& residual,
                                               const Steps& steps, bool whole_before,
                                               const std::vector<std::byte>& numbers) {
  const KvType type = types.keys;
  const std::size_t page = kv_page_bytes(KvPart::keys, type, kKvHeads, kDims);
  const std::size_t of_values = kv_page_bytes(KvPart::values, types.values, kKvHeads, kDims);
  const std::size_t copy = kv_page_bytes(KvPart::keys, KvType::f16, kKvHeads, kDims);
  const std::size_t pages = steps.size() * kPages;
  const DeviceArray<std::byte> keys(std::vector<std::byte>(pages * page, kJunk)),
      values(std::vector<std::byte>(pages * of_values, kJunk)), copies(numbers);
  std::vector<AttentionRun> runs;
  std::vector<std::int32_t> table;
  AttentionBatch batch;
  for (const auto& [first, rows] : steps) {
    const auto at = static_cast<std::int32_t>(table.size());
    runs.push_back({static_cast<std::int32_t>(batch.tokens), rows, first, at, at + kPages});
    for (int twice = 0; twice < 2; ++twice) {
      for (int i = 0; i < kPages; ++i)
        table.push_back(static_cast<std::int32_t>(runs.size() - 1) * kPages + i);
    }
    batch.tokens += rows;
    batch.longest_run = std::max<std::int64_t>(batch.longest_run, rows);
  }
  const DeviceArray<AttentionRun> runs_there(runs);
  const DeviceArray<std::int32_t> table_there(table);
  batch.runs = runs_there.data();
  batch.run_count = static_cast<int>(runs.size());
  batch.pages = table_there.data();
  const auto page_bytes = static_cast<std::int64_t>(page),
             copy_bytes = static_cast<std::int64_t>(copy);
  KvQuantizeArguments a;
  a.batch = batch;
  a.heads = {kKvHeads, kKvHeads, kDims, 0, 1};
  a.keys = {keys.data(), page_bytes, type, codes_of(KvPart::keys, type, kDims)};
  a.values = {values.data(), static_cast<std::int64_t>(of_values), types.values,
              codes_of(KvPart::values, types.values, kDims)};
  a.copied = {
      {copies.data(), copy_bytes, KvType::f16}, {copies.data(), copy_bytes, KvType::f16}, residual};
  a.whole_before = whole_before;
  a.layer_count = 1;
  a.layers[0] = {keys.data(), values.data(), copies.data(), copies.data()};
  launch_kv_quantize(a, test_stream());
  const std::vector<std::byte> found = keys.host();
  const std::size_t row = kv_number_bytes(kv_scheme(type), kDims);
  const auto ends = static_cast<std::size_t>(kv_ends(KvPart::keys, type, kDims));
  std::vector<std::vector<std::byte>> portable(pages, std::vector<std::byte>(64 * row + 4 * ends));
  for (std::size_t i = 0; i < pages; ++i) {
    test::read_kv(test::PageOrder::gpu, {KvPart::keys, type, kKvHeads, kDims, 1},
                  {found.data() + i * page, page}, portable[i]);
  }
  return portable;
}

std::vector<std::byte> random_copies(std::size_t sequences) {
  return random_halves(sequences * kPages *
                       kv_page_bytes(KvPart::keys, KvType::f16, kKvHeads, kDims));
}

// Returns the first positions of the key blocks that a launch writes.
std::vector<std::vector<int>> quantized_by(const Types& types, const KvResidual& residual,
                                           const Steps& steps, bool whole_before) {
  const auto pages = keys_after(types, residual, steps, whole_before, random_copies(steps.size()));
  const std::size_t row = kv_number_bytes(kv_scheme(types.keys), kDims);
  std::vector<std::vector<int>> quantized(steps.size());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const int block = kv_scheme(types.keys).block;
    for (int slot = 0; slot < 64; slot += block) {
      const auto from = pages[i].begin() + slot * static_cast<std::ptrdiff_t>(row);
      const auto untouched = [](std::byte b) { return b == kJunk; };
      const bool whole =
          std::all_of(from, from + block * static_cast<std::ptrdiff_t>(row), untouched);
      if (!whole) quantized[i / kPages].push_back(static_cast<int>(i % kPages) * 64 + slot);
    }
  }
  return quantized;
}

// A query at `i` reads a block as codes if the block's end is at least `recent` positions back.
std::vector<int> due(const Types& types, const KvResidual& residual, int first, int rows,
                     bool whole_before) {
  std::vector<int> blocks;
  for (int block = 0; block + residual.block <= first + rows; block += residual.block) {
    const int end = block + residual.block;
    const auto read_by = [&](int i) { return end <= i + 1 - residual.recent; };
    bool read = false;
    for (int i = first; i < first + rows; ++i) read = read || read_by(i);
    const bool done = first > 0 && read_by(first - 1);
    if (!read || done || (end <= first) != whole_before) continue;
    for (int at = block; at < end; at += kv_scheme(types.keys).block) blocks.push_back(at);
  }
  return blocks;
}

void expect_due(const Types& types, int recent, const std::vector<std::pair<int, int>>& steps) {
  KvResidual residual = kv_residual(types.keys, types.values);
  residual.recent = recent;
  for (const bool whole_before : {true, false}) {
    const auto quantized = quantized_by(types, residual, steps, whole_before);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      EXPECT_EQ(quantized[s], due(types, residual, steps[s].first, steps[s].second, whole_before))
          << kv_type_name(types.keys) << '/' << kv_type_name(types.values) << ", recent " << recent
          << ", " << steps[s].second << " rows from " << steps[s].first
          << (whole_before ? ", before" : ", by the step");
    }
  }
}

TEST(KvQuantize, MakesCodesOfEachBlockOnceInTheLaunchThatItIsDueIn) {
  std::mt19937 random(1);
  std::vector<std::pair<int, int>> steps;
  for (const int rows : {1, 31, 32, 33, 63, 64, 65, 96, 128}) {
    for (int i = 0; i < 4; ++i) {
      const int first = static_cast<int>(random() % static_cast<unsigned>(kPositions - rows + 1));
      steps.emplace_back(i == 0 ? first & -64 : first, rows);
    }
  }
  for (const Types& types : kTypes) {
    for (const int recent : {1, 40}) expect_due(types, recent, steps);
  }
}

// For runs of equal length, the grid has no spare blocks; it must suffice wherever runs begin.
TEST(KvQuantize, TheGridSufficesForRunsOfEqualLength) {
  for (const Types& types : kTypes) {
    for (const int rows : {1, 9, 33, 65}) {
      std::vector<std::pair<int, int>> steps;
      for (int first = 0; first < 72; first += 5) steps.emplace_back(first, rows);
      for (const int recent : {0, 8, 40}) expect_due(types, recent, steps);
    }
  }
}

// Sinks are only read in f16, so their values must not change the other codes of their block.
TEST(KvQuantize, SinksDoNotChangeTheCodesOfTheirBlock) {
  const Steps steps = {{0, 128}};
  constexpr int kSinks = 4;
  std::vector<std::byte> numbers = random_copies(1), with_large = numbers;
  const std::uint16_t large = f32_to_f16(1000.0f);
  for (int head = 0; head < kKvHeads; ++head) {
    for (int i = 0; i < kSinks * kDims; ++i) {
      std::memcpy(with_large.data() + (head * 64 * kDims + i) * 2, &large, 2);
    }
  }
  for (const Types& types : kTypes) {
    KvResidual residual = kv_residual(types.keys, types.values);
    residual.recent = 8;
    const auto keys = [&](int sinks, const std::vector<std::byte>& copies) {
      residual.sinks = sinks;
      std::vector<std::byte> page = keys_after(types, residual, steps, false, copies)[0];
      // The codes of the sinks themselves are not compared, because they are never read.
      const std::size_t row = kv_number_bytes(kv_scheme(types.keys), kDims);
      page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(kSinks * row));
      return page;
    };
    EXPECT_EQ(keys(kSinks, with_large), keys(kSinks, numbers));
    EXPECT_NE(keys(0, with_large), keys(0, numbers));
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
