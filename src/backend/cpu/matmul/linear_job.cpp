#include "backend/cpu/matmul/linear_job.h"

#include <algorithm>
#include <cstring>

#include "backend/checks.h"
#include "backend/cpu/rows/quantize_rows.h"
#include "backend/cpu/rows/rows_layout.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kGroupColumns = 128;  // columns of an activation scale and a quantized unit

// Buffer of a unit's values, before and after the epilogue: [kTileTokens][kTileStride], with gate
// before up. The stride is not a power of two, so that rows of a tile do not share cache sets.
constexpr std::int64_t kTileTokens = 256;
constexpr std::int64_t kTileStride = kUnitPanels * kPanelRows + 16;
constexpr std::size_t kTileBytes =
    static_cast<std::size_t>(kTileTokens * kTileStride) * sizeof(float);
constexpr std::size_t kWorkerBytes = kPanelScratchBytes + kTileBytes;
static_assert(kWorkerBytes % 64 == 0);

// Bytes of weights that a task with few tokens reads: about 4 us of a core's memory bandwidth.
constexpr std::int64_t kTaskBytes = 64 * 1024;
// With this many tokens, a panel's products take as long as its read; with more, tasks read less.
constexpr std::int64_t kTokensAsReading = 16;
// Blocks have at least this many tokens when rows are divided to keep all threads busy.
constexpr std::int64_t kFewestTokens = 48;
// Size of a block of tokens in bytes, so that its codes remain in the L2 cache for all panels. It
// is rounded to whole tiles of the tallest kernel.
constexpr std::int64_t kInputBytes = 768 * 1024;
constexpr std::int64_t kTokenUnit = 32;

std::int64_t panels(const WeightView& weight) { return weight.padded_rows() / kPanelRows; }

bool quantizes_groups(const LinearJob& job) {
  return quantized_unit(job.out.format) == QuantizedUnit::columns_128;
}

void add_part(OutputUnit& unit, const LinearJob& job, int segment, std::int64_t panel,
              std::int64_t tile_column) {
  if (panel >= panels(job.linear.segments[static_cast<std::size_t>(segment)].weight)) return;
  unit.parts[static_cast<std::size_t>(unit.part_count++)] = {segment, panel, tile_column};
}

}  // namespace

OutputUnit unit_at(const LinearJob& job, std::int64_t index) {
  OutputUnit unit;
  if (job.pairs) {
    unit.first = index * kGroupColumns;
    unit.columns = std::min(kGroupColumns, job.out.width - unit.first);
    for (int segment = 0; segment < static_cast<int>(job.linear.segments.size()); ++segment) {
      add_part(unit, job, segment, 2 * index, segment * kGroupColumns);
      add_part(unit, job, segment, 2 * index + 1, segment * kGroupColumns + kPanelRows);
    }
    return unit;
  }
  int segment = 0;
  for (const LinearSegment& part : job.linear.parts()) {
    if (index < panels(part.weight)) {
      add_part(unit, job, segment, index, 0);
      unit.first += index * kPanelRows;
      unit.columns = std::min(kPanelRows, part.weight.rows - index * kPanelRows);
      break;
    }
    index -= panels(part.weight);
    unit.first += part.weight.rows;
    ++segment;
  }
  return unit;
}

void plan(LinearJob& job) {
  const Linear& linear = job.linear;
  std::int64_t panel_count = 0;
  std::int64_t bytes = 0;
  for (const LinearSegment& segment : linear.parts()) {
    panel_count += panels(segment.weight);
    bytes += static_cast<std::int64_t>(plane_bytes(segment.weight.scheme, segment.weight.act,
                                                   segment.weight.rows, segment.weight.columns)
                                           .codes);
  }
  job.pairs = job.epilogue.is_gated() || quantizes_groups(job);
  job.units = job.pairs ? (job.out.width + kGroupColumns - 1) / kGroupColumns : panel_count;
  const std::int64_t threads = job.context.pool.threads();
  const std::int64_t cost = std::max<std::int64_t>(1, bytes / job.units) *
                            std::max<std::int64_t>(1, job.tokens / kTokensAsReading);
  const std::int64_t most = std::max<std::int64_t>(1, job.units / (4 * threads));
  job.units_per_task = std::clamp<std::int64_t>(kTaskBytes / cost, 1, most);
  job.unit_tasks = (job.units + job.units_per_task - 1) / job.units_per_task;
  job.block_tokens = job.tokens;
  if (threads > 1 && job.unit_tasks < 4 * threads) {
    const std::int64_t blocks = std::clamp<std::int64_t>(
        job.tokens / kFewestTokens, 1, (4 * threads + job.unit_tasks - 1) / job.unit_tasks);
    job.block_tokens = (job.tokens + blocks - 1) / blocks;
  }
  const std::int64_t fitting = std::max(2 * kTokenUnit, kInputBytes / linear.inputs);
  if (is_coded(linear.act) && job.block_tokens > fitting) {
    const std::int64_t blocks = (job.tokens + fitting - 1) / fitting;  // of nearly equal size
    const std::int64_t units = (job.tokens + blocks * kTokenUnit - 1) / (blocks * kTokenUnit);
    job.block_tokens = units * kTokenUnit;
  }
}

std::int64_t task_count(const LinearJob& job) {
  return job.unit_tasks * ((job.tokens + job.block_tokens - 1) / job.block_tokens);
}

namespace {

// Whether the kernel writes the results of a unit directly to out.
bool writes_to_out(const LinearJob& job, const OutputUnit& unit) {
  return job.epilogue == Epilogue::none && !job.pairs && unit.columns == kPanelRows &&
         job.target.consumer.inv_smooth == nullptr;
}

std::int64_t out_row(const LinearJob& job, std::int64_t row) {
  return job.scattered.to == nullptr ? row : job.scattered.to[row];
}

NextPanel panel_of(const LinearJob& job, const OutputUnit::Part& part) {
  return {&job.linear.segments[static_cast<std::size_t>(part.segment)], part.panel};
}

// Finishes a row of a unit: writes values [columns] (gate, then up if gated) to out.
void finish_row(LinearJob& job, const OutputUnit& unit, std::int64_t token, float* values) {
  const RowKernels& rows = job.context.rows;
  Rows& out = job.out;
  const auto f = static_cast<std::size_t>(job.epilogue.activation);
  if (job.epilogue.is_gated()) {
    rows.gated[f](values, values + kGroupColumns, unit.columns, values);
  } else if (job.epilogue.kind == Epilogue::Kind::activated) {
    rows.activated[f](values, unit.columns, values);
  }
  if (const float* factors = job.target.consumer.inv_smooth; factors != nullptr) {
    rows.multiply(factors + unit.first, unit.columns, values);
  }
  if (job.scattered.weight != nullptr) {
    const float weight = job.scattered.weight[token];
    for (std::int64_t i = 0; i < unit.columns; ++i) values[i] *= weight;
  }
  if (out.values != nullptr) {
    float* const to = out.values + out_row(job, token) * out.value_stride + unit.first;
    if (job.epilogue == Epilogue::add) {
      rows.add(values, unit.columns, to);
    } else {
      std::memcpy(to, values, static_cast<std::size_t>(unit.columns) * sizeof(float));
    }
  }
  if (quantizes_groups(job) &&
      !quantize_columns(rows, values, token, unit.first, unit.columns, job.target)) {
    job.bad_row.report(token);
  }
}

// In `out`, the values to which results are added are a few lines per row, and rows are far apart,
// so that these lines are prefetched this many rows ahead.
constexpr std::int64_t kRowsAhead = 16;

inline __attribute__((always_inline)) void fetch_ahead(const LinearJob& job, const OutputUnit& unit,
                                                       std::int64_t token) {
  const float* const row = job.out.values + out_row(job, token) * job.out.value_stride + unit.first;
  for (std::int64_t i = 0; i < unit.columns; i += 16) __builtin_prefetch(row + i, 1);
}

}  // namespace

NextPanel first_panel(const LinearJob& job, const OutputUnit& unit) {
  return panel_of(job, unit.parts[0]);
}

std::byte* worker_scratch(const LinearContext& context, int worker) {
  return context.scratch.data() + static_cast<std::size_t>(worker) * kWorkerBytes;
}

void run_unit(LinearJob& job, const OutputUnit& unit, const NextPanel& next, std::int64_t token,
              std::int64_t tokens, std::byte* scratch) {
  auto* const tile = reinterpret_cast<float*>(scratch + kPanelScratchBytes);
  const bool straight = writes_to_out(job, unit);
  const std::int64_t step = straight ? tokens : kTileTokens;
  for (std::int64_t t = 0; t < tokens; t += step) {
    PanelTask task;
    task.x = &job.x;
    task.token = token + t;
    task.tokens = std::min(step, tokens - t);
    task.scratch = scratch;
    task.fetch = job.context.fetch;
    for (int i = 0; i < unit.part_count; ++i) {
      const OutputUnit::Part& part = unit.parts[static_cast<std::size_t>(i)];
      task.segment = &job.linear.segments[static_cast<std::size_t>(part.segment)];
      task.panel = part.panel;
      const bool last = i + 1 == unit.part_count;
      const NextPanel after =
          last ? next : panel_of(job, unit.parts[static_cast<std::size_t>(i + 1)]);
      task.next_segment = after.segment;
      task.next_panel = after.panel;
      task.y = straight ? job.out.values + task.token * job.out.value_stride + unit.first
                        : tile + part.tile_column;
      task.y_stride = straight ? job.out.value_stride : kTileStride;
      multiply_panel(job.context.matmul, task);
    }
    if (straight) continue;
    for (std::int64_t row = 0; row < task.tokens; ++row) {
      if (job.epilogue == Epilogue::add && row + kRowsAhead < task.tokens) {
        fetch_ahead(job, unit, task.token + row + kRowsAhead);
      }
      finish_row(job, unit, task.token + row, tile + row * kTileStride);
    }
  }
}

void run_task(LinearJob& job, std::int64_t task, int worker) {
  std::byte* const scratch = worker_scratch(job.context, worker);
  const std::int64_t first = task % job.unit_tasks * job.units_per_task;
  const std::int64_t last = std::min(first + job.units_per_task, job.units);
  const std::int64_t token = task / job.unit_tasks * job.block_tokens;
  const std::int64_t tokens = std::min(job.block_tokens, job.tokens - token);
  OutputUnit unit = unit_at(job, first);
  for (std::int64_t index = first; index < last; ++index) {
    const OutputUnit next = unit_at(job, (index + 1) % job.units);
    const bool ends = index + 1 == job.units && job.after.segment != nullptr;
    run_unit(job, unit, ends ? job.after : first_panel(job, next), token, tokens, scratch);
    unit = next;
  }
}

void check_job(const LinearJob& job) {
  const Linear& linear = job.linear;
  const Rows& out = job.out;
  check_inputs(linear, job.x);
  check_linear_outputs(linear, job.tokens, job.x, job.epilogue, job.target);
  ensure(job.epilogue.is_gated() || !quantizes_groups(job) || linear.segments.size() == 1,
         linear.name, ": outputs of several weights cannot be quantized by groups");
  ensure(quantized_unit(out.format) != QuantizedUnit::row || out.values != nullptr, linear.name,
         ": outputs quantized by row need their f32 values kept");
  ensure(job.context.scratch.size() >= linear_scratch_bytes(job.context.pool.threads()),
         linear.name, ": scratch of ", job.context.scratch.size(), " bytes is too small");
}

std::size_t linear_scratch_bytes(int threads) {
  return static_cast<std::size_t>(threads) * kWorkerBytes;
}

}  // namespace leq::cpu
