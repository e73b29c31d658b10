// The division of an attention batch into tasks, and the scratch that the tasks need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/kv_types.h"

namespace leq::cpu {

// Neighbouring rows of one run.
struct RowBlock {
  std::int64_t first_row = 0;  // index in the batch
  std::int64_t rows = 0;
  std::int64_t first_position = 0;
  std::span<const std::int32_t> pages;
  std::int64_t run_end = 0;  // the position after the run's last row

  std::int64_t end_position() const { return first_position + rows; }
};

// Blocks have at most `most` rows. With `aligned` they end at positions that are multiples of it.
enum class BlockEnds : std::uint8_t { anywhere, aligned };

inline std::vector<RowBlock> cut_runs(const BatchView& batch, std::int64_t most, BlockEnds ends) {
  std::vector<RowBlock> blocks;
  for (const SequenceRun& run : batch.runs) {
    for (std::int64_t done = 0; done < run.rows;) {
      const std::int64_t position = run.first_position + done;
      const std::int64_t left = ends == BlockEnds::aligned ? most - position % most : most;
      const std::int64_t rows = std::min(left, run.rows - done);
      blocks.push_back({run.first_row + done, rows, position, run.pages, run.end_position()});
      done += rows;
    }
  }
  return blocks;
}

// A record holds one query's partial sums: o[d], then m and l. l is 0 before the first position.
struct AttentionPlan {
  int threads = 0;
  std::int64_t tokens = 0;
  int group = 0;                   // most query heads per kv head
  std::int64_t block_rows = 0;     // most rows per block
  std::int64_t block_queries = 0;  // most queries of a block, over kv heads read together
  std::int64_t record_floats = 0;  // ceil16(d) + 16
  bool split = false;              // tasks are divided by spans too
  std::int64_t spans = 0;          // number of spans in the context
  std::int64_t wave_spans = 0;     // with split: most spans whose partial records exist at once
  std::int64_t output_groups = 0;  // 128-column groups of the output, at least 1

  // The parts of the scratch, in this order; each is rounded up to whole lines of 64 bytes.
  std::size_t worker_bytes = 0;   // per thread
  std::size_t partial_bytes = 0;  // with split: [tokens * H][wave_spans] records
  std::size_t total_bytes = 0;    // with split: [tokens * H] records
  std::size_t counter_bytes = 0;  // i32 [tokens][output_groups], with split then [tokens * H_kv]
  std::size_t value_bytes = 0;    // [tokens][H d] f32, if outputs are stored only as codes

  std::size_t bytes() const {
    return static_cast<std::size_t>(threads) * worker_bytes + partial_bytes + total_bytes +
           counter_bytes + value_bytes;
  }
};

// The plan for a batch of `tokens` rows at positions below `context`.
AttentionPlan plan_attention(int threads, std::int64_t tokens, const AttentionShape& shape,
                             std::int64_t context);

// The parts of the scratch that all threads share.
struct SharedScratch {
  float* partials = nullptr;
  float* totals = nullptr;
  std::int32_t* counters = nullptr;
  float* values = nullptr;
};

SharedScratch shared_scratch(const AttentionPlan& plan, std::span<std::byte> scratch);

// The number of neighbouring kv heads that a block reads together. Their parts of a page, of
// `part_bytes` each, should form a long contiguous piece, unless that leaves too few tasks.
std::int64_t heads_together(const AttentionPlan& plan, const AttentionShape& shape,
                            std::int64_t blocks, std::int64_t rows, std::int64_t part_bytes);

// One thread's part of the scratch, where Q is block_queries.
struct WorkerScratch {
  float* scores = nullptr;          // [Q][512]
  float* span_records = nullptr;    // [Q][record]
  float* records = nullptr;         // [Q][record]
  float* wide = nullptr;            // [64][d]
  float* lanes = nullptr;           // [Q][value groups][16]
  float* folded = nullptr;          // [6][2][d] queries multiplied by scales of keys
  float* weights = nullptr;         // [6][value groups][64]
  float* starts = nullptr;          // [Q][16] initial scores for each block of the span's keys
  float* code_scales = nullptr;     // [Q]
  float* code_sums = nullptr;       // [Q]
  const float** queries = nullptr;  // [Q] addresses of the queries
  std::int32_t* firsts = nullptr;   // [Q] range of the span's columns that a query sees
  std::int32_t* lasts = nullptr;    // [Q]
  std::int8_t* codes = nullptr;     // [Q][ceil4(d)]
};

// Throws Error if the reserved scratch is too small.
void require_scratch(const AttentionPlan& plan, std::span<const std::byte> scratch);

WorkerScratch worker_scratch(const AttentionPlan& plan, const AttentionShape& shape,
                             std::span<std::byte> scratch, int worker);

}  // namespace leq::cpu
