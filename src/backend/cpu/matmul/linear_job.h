// A linear over a block of rows as tasks of a thread pool: outputs in units of panels, rows in
// blocks. Used for single linears (linear.h) and for several experts together (experts.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul/linear.h"
#include "backend/cpu/matmul/panel_matmul.h"
#include "backend/cpu/rows/first_bad_row.h"

namespace leq::cpu {

inline constexpr std::int64_t kUnitPanels = 4;  // gate and up: two panels each

// Outputs that are finished together: one panel, two panels that form a group of 128 columns, or
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

// The panel that a thread will probably multiply after the current one.
struct NextPanel {
  const LinearSegment* segment = nullptr;
  std::int64_t panel = 0;
};

// The destination of the finished rows of one expert: row r, times weight[r], is added to row to[r]
// of the output.
struct ScatteredRows {
  const std::int32_t* to = nullptr;  // null: row r is the output's row r
  const float* weight = nullptr;
};

// One linear over some rows: its operands, and its division into tasks.
struct LinearJob {
  const LinearContext& context;
  const Rows& x;
  std::int64_t tokens;
  const Linear& linear;
  Epilogue epilogue;
  const RowsFor& target;
  Rows& out;  // target.rows
  ScatteredRows scattered = {};
  NextPanel after = {};  // panel after the last unit; null: the job's first panel
  FirstBadRow bad_row = {};
  bool pairs = false;  // units have 128 columns
  std::int64_t units = 0;
  std::int64_t units_per_task = 1;
  std::int64_t unit_tasks = 0;
  std::int64_t block_tokens = 0;
};

// Divides the job into units and blocks of rows.
void plan(LinearJob& job);
std::int64_t task_count(const LinearJob& job);
// Runs one of task_count tasks; several threads may run different tasks concurrently.
void run_task(LinearJob& job, std::int64_t task, int worker);
// For callers that define their own tasks: unit `index`, and the computation of a unit for rows
// [row, row + rows) with the worker's scratch (worker_scratch).
OutputUnit unit_at(const LinearJob& job, std::int64_t index);
void run_unit(LinearJob& job, const OutputUnit& unit, const NextPanel& next, std::int64_t row,
              std::int64_t rows, std::byte* scratch);
NextPanel first_panel(const LinearJob& job, const OutputUnit& unit);
std::byte* worker_scratch(const LinearContext& context, int worker);
// Throws Error if inputs, outputs and scratch do not fit the linear.
void check_job(const LinearJob& job);

}  // namespace leq::cpu
