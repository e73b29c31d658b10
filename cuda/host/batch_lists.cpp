#include "cuda/host/batch_lists.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kRunInts = sizeof(AttentionRun) / sizeof(std::int32_t);

// Returns the next run (with step -1: the previous run) that writes run i's state; -1: none.
std::int32_t neighbour(std::span<const SequenceRun> runs, std::int32_t i, std::int32_t step) {
  const auto state = [&](std::int32_t at) { return runs[static_cast<std::size_t>(at)].state_to; };
  if (state(i) == nullptr) return -1;
  for (std::int32_t at = i + step; at >= 0 && at < std::ssize(runs); at += step) {
    if (state(at) == state(i)) return at;
  }
  return -1;
}

}  // namespace

std::vector<std::int32_t> batch_numbers(const BatchView& batch, const PageTables& tables,
                                        std::span<const std::int32_t> more) {
  std::vector<std::int32_t> numbers;
  std::int64_t all_pages = 0;
  for (const SequenceRun& run : batch.runs) all_pages += std::ssize(run.pages);
  const auto add_runs = [&](std::int64_t pages) {
    std::int64_t copies = all_pages;
    for (const SequenceRun& run : batch.runs) {
      for (const std::int64_t field :
           {run.first_row, run.rows, run.first_position, pages, copies}) {
        numbers.push_back(static_cast<std::int32_t>(field));
      }
      for (const std::byte* state : {run.state_from, static_cast<const std::byte*>(run.state_to)}) {
        const auto address = reinterpret_cast<std::uintptr_t>(state);
        numbers.push_back(static_cast<std::int32_t>(address & 0xffffffffu));
        numbers.push_back(static_cast<std::int32_t>(address >> 32));
      }
      const std::int32_t i = static_cast<std::int32_t>(&run - batch.runs.data());
      numbers.push_back(neighbour(batch.runs, i, -1));
      numbers.push_back(neighbour(batch.runs, i, 1));
      pages += std::ssize(run.pages);
      copies += std::ssize(run.pages);
    }
  };
  add_runs(0);
  if (!tables.frames.empty()) add_runs(tables.copies.empty() ? all_pages : 2 * all_pages);
  for (std::size_t i = 0; i < batch.runs.size(); ++i) {
    numbers.insert(numbers.end(), static_cast<std::size_t>(batch.runs[i].rows),
                   static_cast<std::int32_t>(i));
  }
  numbers.insert(numbers.end(), more.begin(), more.end());
  for (const SequenceRun& run : batch.runs) {
    numbers.insert(numbers.end(), run.pages.begin(), run.pages.end());
  }
  for (const auto& table : {tables.copies, tables.frames}) {
    if (table.empty()) continue;
    for (const SequenceRun& run : batch.runs) {
      for (const std::int32_t page : run.pages) {
        numbers.push_back(table[static_cast<std::size_t>(page)]);
      }
    }
  }
  return numbers;
}

AttentionBatch batch_at(const std::int32_t* there, const BatchView& batch, bool frames,
                        std::int64_t more) {
  AttentionBatch made;
  made.tokens = batch.tokens;
  made.runs = reinterpret_cast<const AttentionRun*>(there);
  made.run_count = static_cast<int>(batch.runs.size());
  made.row_runs = there + std::ssize(batch.runs) * kRunInts * (frames ? 2 : 1);
  made.pages = made.row_runs + batch.tokens + more;
  for (const SequenceRun& run : batch.runs) {
    made.longest_run = std::max(made.longest_run, run.rows);
    made.single_runs += run.rows == 1 ? 1 : 0;
  }
  made.end = batch.end_position();
  return made;
}

AttentionBatch BatchLists::push(const BatchView& batch, const PageTables& tables) {
  std::vector<std::int32_t> numbers = batch_numbers(batch, tables);
  if (there_ == nullptr || round_ != staging_.round() || numbers != numbers_) {
    numbers_ = std::move(numbers);
    there_ = staging_.push(numbers_);
    round_ = staging_.round();
  }
  return batch_at(there_, batch, !tables.frames.empty());
}

}  // namespace leq::LEQ_GPU
