#include "cuda/batch_lists.h"

#include <algorithm>
#include <utility>

namespace leq::LEQ_GPU {
namespace {

constexpr std::size_t kRunInts = sizeof(AttentionRun) / sizeof(std::int32_t);

std::vector<std::int32_t> lists_of(const BatchView& batch) {
  std::vector<std::int32_t> lists;
  std::int64_t pages = 0;
  for (const SequenceRun& run : batch.runs) {
    for (const std::int64_t field : {run.first_row, run.rows, run.first_position, pages}) {
      lists.push_back(static_cast<std::int32_t>(field));
    }
    pages += std::ssize(run.pages);
  }
  for (std::size_t i = 0; i < batch.runs.size(); ++i) {
    lists.insert(lists.end(), static_cast<std::size_t>(batch.runs[i].rows),
                 static_cast<std::int32_t>(i));
  }
  for (const SequenceRun& run : batch.runs) {
    lists.insert(lists.end(), run.pages.begin(), run.pages.end());
  }
  return lists;
}

}  // namespace

AttentionBatch BatchLists::push(const BatchView& batch) {
  std::vector<std::int32_t> lists = lists_of(batch);
  if (there_ == nullptr || round_ != staging_.round() || lists != lists_) {
    lists_ = std::move(lists);
    there_ = staging_.push(lists_);
    round_ = staging_.round();
  }
  AttentionBatch made;
  made.tokens = batch.tokens;
  made.runs = reinterpret_cast<const AttentionRun*>(there_);
  made.run_count = static_cast<int>(batch.runs.size());
  made.row_runs = there_ + batch.runs.size() * kRunInts;
  made.pages = made.row_runs + batch.tokens;
  for (const SequenceRun& run : batch.runs) {
    made.longest_run = std::max(made.longest_run, run.rows);
    made.end = std::max(made.end, run.first_position + run.rows);
  }
  return made;
}

}  // namespace leq::LEQ_GPU
