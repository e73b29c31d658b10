// Divides the runs of a batch into blocks of rows, the work unit of rotation and attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_types.h"

namespace leq::cpu {

// Neighbouring rows of one run.
struct RowBlock {
  std::int64_t first_row = 0;  // index in the batch
  std::int64_t rows = 0;
  std::int64_t first_position = 0;
  std::span<const std::int32_t> pages;

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
      blocks.push_back({run.first_row + done, rows, position, run.pages});
      done += rows;
    }
  }
  return blocks;
}

}  // namespace leq::cpu
