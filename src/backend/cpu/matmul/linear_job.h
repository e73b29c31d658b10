// A linear over a block of rows as tasks of a thread pool: outputs in units of panels, rows in
// blocks. What one linear runs alone (linear.h) several experts run together (experts.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul/linear.h"
#include "backend/cpu/matmul/panel_matmul.h"
#include "backend/cpu/rows/first_bad_row.h"

namespace leq::cpu {

inline constexpr std::int64_t kUnitPanels = 4;  // gate and up, two panels of each

// Outputs that are finished together: one panel, two panels that make a group of 128 columns, or
// two panels of gate and two of up.
struct OutputUnit {
  struct Part {
    int segment = 0;
    std::int64_t panel = 0;
    std::int64_t tile_column = 0;
  };
  std::array<Part, kUnitPanels> parts;
  int part_count = 0;
  std::int64_t first = 0;    // first column of out
  std::int64_t columns = 0;  // columns of out
};

// The panel that a thread will probably multiply after the one at work.
struct NextPanel {
  const LinearSegment* segment = nullptr;
  std::int64_t panel = 0;
};

// Where finished rows go that are one expert's of each token: row r is added, times weight[r], to
// row to[r] of the output.
struct ScatteredRows {
  const std::int32_t* to = nullptr;  // null: row r is row r
  const float* weight = nullptr;
};

// One linear over some rows: what is asked for and how it is cut into tasks.
struct LinearJob {
  const LinearContext& context;
  const Rows& x;
  std::int64_t tokens;
  const Linear& linear;
  Epilogue epilogue;
  const RowsFor& target;
  Rows& out;  // of target
  ScatteredRows scattered = {};
  NextPanel after = {};  // what follows the last unit; null: the first again
  FirstBadRow bad_row = {};
  bool pairs = false;  // units of 128 columns
  std::int64_t units = 0;
  std::int64_t units_per_task = 1;
  std::int64_t unit_tasks = 0;
  std::int64_t block_tokens = 0;
};

// Cuts the job into units and blocks of rows.
void plan(LinearJob& job);
std::int64_t task_count(const LinearJob& job);
// One of task_count tasks; several threads at once.
void run_task(LinearJob& job, std::int64_t task, int worker);
// For who makes tasks of its own: unit `index` over rows [row, row + rows), with scratch of the
// worker's own (worker_scratch).
OutputUnit unit_at(const LinearJob& job, std::int64_t index);
void run_unit(LinearJob& job, const OutputUnit& unit, const NextPanel& next, std::int64_t row,
              std::int64_t rows, std::byte* scratch);
NextPanel first_panel(const LinearJob& job, const OutputUnit& unit);
std::byte* worker_scratch(const LinearContext& context, int worker);
// Throws Error where inputs, outputs and scratch do not fit the linear.
void check_job(const LinearJob& job);

}  // namespace leq::cpu
