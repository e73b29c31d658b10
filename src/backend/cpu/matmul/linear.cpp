#include "backend/cpu/matmul/linear.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "backend/backend.h"
#include "backend/checks.h"
#include "backend/cpu/matmul/panel_matmul.h"
#include "backend/cpu/rows/rows.h"
#include "backend/rows_slice.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kUnitPanels = 4;  // gate and up: two panels each

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

// Divides the job into units and blocks of rows.
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

NextPanel first_panel(const LinearJob& job, const OutputUnit& unit) {
  return panel_of(job, unit.parts[0]);
}

std::byte* worker_scratch(const LinearContext& context, int worker) {
  return context.scratch.data() + static_cast<std::size_t>(worker) * kWorkerBytes;
}

// Computes a unit for rows [token, token + tokens) with the worker's scratch.
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

// Runs one of task_count tasks; several threads may run different tasks concurrently.
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

// Throws Error if inputs, outputs and scratch do not fit the linear.
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

// Experts: the rows of a step are grouped by expert, and all groups run in one loop of the pool.
// For any grouping the results are bit-identical to run_linear's.
constexpr std::int64_t kCopiedRows = 4;            // rows per task of a loop that copies rows
constexpr std::int64_t kAddTaskBytes = 64 * 1024;  // least bytes that a task of experts_add reads
constexpr std::int64_t kFewestAddTokens = 48;      // least tokens of a block, if tokens are divided

// One expert's linear and its rows. Not movable, because `job` refers to other members.
struct Group {
  Rows in, out_rows;
  RowsFor out;
  LinearJob job;

  Group(const LinearContext& context, Rows input, std::int64_t rows, const Linear& linear,
        Epilogue epilogue, Rows output, const RowsConsumer& reader)
      : in(std::move(input)),
        out_rows(std::move(output)),
        out(out_rows, reader),
        job{context, in, rows, linear, epilogue, out, out_rows} {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
};

void copy_row(const Rows& from, std::int64_t row, Rows& to, std::int64_t at) {
  const auto copy = [&](const auto* source, std::int64_t source_stride, auto* target,
                        std::int64_t target_stride) {
    if (target == nullptr || target_stride == 0) return;
    const std::int64_t count = std::min(source_stride, target_stride);
    std::memcpy(target + at * target_stride, source + row * source_stride,
                static_cast<std::size_t>(count) * sizeof *target);
  };
  copy(from.values, from.value_stride, to.values, to.value_stride);
  copy(from.codes, from.code_stride, to.codes, to.code_stride);
  copy(from.scales, from.scale_stride, to.scales, to.scale_stride);
  copy(from.sums, from.sum_stride, to.sums, to.sum_stride);
}

void check_grouped(const Rows& x, const Rows& grouped, const ExpertRoutes& routes) {
  ensure(grouped.width == x.width && grouped.format.act == x.format.act &&
             grouped.format.sum_group == x.format.sum_group &&
             (grouped.values == nullptr || x.values != nullptr),
         "experts: rows in groups have another format than their inputs");
  require_capacity("experts", routes.rows(), grouped);
}

void group_rows(ThreadPool& pool, const Rows& x, const ExpertRoutes& routes, Rows& grouped) {
  const std::int64_t rows = routes.rows();
  pool.run((rows + kCopiedRows - 1) / kCopiedRows, [&](std::int64_t task, int) {
    const std::int64_t last = std::min((task + 1) * kCopiedRows, rows);
    for (std::int64_t row = task * kCopiedRows; row < last; ++row) {
      copy_row(x, routes.token[static_cast<std::size_t>(row)], grouped, row);
    }
  });
}

Slice rows_of_group(const ExpertRoutes& routes, std::int64_t expert) {
  const auto e = static_cast<std::size_t>(expert);
  return {routes.first[e], routes.first[e + 1]};
}

// Runs the tasks of all groups in a single loop of the pool.
void run_all(ThreadPool& pool, std::deque<Group>& groups) {
  std::vector<std::int64_t> ends;
  std::int64_t tasks = 0;
  for (Group& group : groups) {
    plan(group.job);
    ends.push_back(tasks += task_count(group.job));
  }
  for (std::size_t g = 0; g + 1 < groups.size(); ++g) {
    const LinearJob& next = groups[g + 1].job;
    groups[g].job.after = first_panel(next, unit_at(next, 0));
  }
  pool.run(tasks, [&](std::int64_t task, int worker) {
    const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends, task) - ends.begin());
    run_task(groups[at].job, at == 0 ? task : task - ends[at - 1], worker);
  });
}

// Divides experts_add into tasks by outputs and tokens; a task has some outputs of all experts.
struct AddPlan {
  std::int64_t units = 0, units_per_task = 1, unit_tasks = 0, block_tokens = 0;
};

AddPlan plan_add(const LinearContext& context, const ExpertRoutes& routes,
                 const std::deque<Group>& groups) {
  AddPlan add;
  std::int64_t bytes = 0;
  for (const Group& group : groups) {
    const WeightView& weight = group.job.linear.segments[0].weight;
    bytes += static_cast<std::int64_t>(
        plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns).codes);
  }
  const std::int64_t threads = context.pool.threads();
  add.units = groups.front().job.units;
  const std::int64_t cost = std::max<std::int64_t>(1, bytes / add.units);
  const std::int64_t most = std::max<std::int64_t>(1, add.units / (4 * threads));
  add.units_per_task = std::clamp<std::int64_t>(kAddTaskBytes / cost, 1, most);
  add.unit_tasks = (add.units + add.units_per_task - 1) / add.units_per_task;
  std::int64_t blocks = 1;
  if (threads > 1 && add.unit_tasks < 4 * threads) {
    blocks = std::clamp<std::int64_t>(routes.tokens / kFewestAddTokens, 1,
                                      (4 * threads + add.unit_tasks - 1) / add.unit_tasks);
  }
  add.block_tokens = (routes.tokens + blocks - 1) / blocks;
  return add;
}

// The rows of a group, counted from its first row, whose tokens are in [first, last).
Slice rows_of_tokens(const LinearJob& job, std::int64_t first, std::int64_t last) {
  const std::int32_t* const begin = job.scattered.to;
  const std::int32_t* const end = begin + job.tokens;
  return {std::lower_bound(begin, end, first) - begin, std::lower_bound(begin, end, last) - begin};
}

void run_add_task(const LinearContext& context, const AddPlan& add, std::deque<Group>& groups,
                  std::int64_t task, int worker) {
  const std::int64_t first = task % add.unit_tasks * add.units_per_task;
  const std::int64_t last = std::min(first + add.units_per_task, add.units);
  const std::int64_t token = task / add.unit_tasks * add.block_tokens;
  std::byte* const scratch = worker_scratch(context, worker);
  for (std::int64_t unit = first; unit < last; ++unit) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      LinearJob& job = groups[g].job;
      const Slice rows = rows_of_tokens(job, token, token + add.block_tokens);
      if (rows.empty()) continue;
      const bool more = g + 1 < groups.size();
      const LinearJob& after = groups[more ? g + 1 : 0].job;
      const std::int64_t next_unit = more ? unit : (unit + 1) % add.units;
      const NextPanel next = first_panel(after, unit_at(after, next_unit));
      run_unit(job, unit_at(job, unit), next, rows.first, rows.count(), scratch);
    }
  }
}

}  // namespace

std::size_t linear_scratch_bytes(int threads) {
  return static_cast<std::size_t>(threads) * kWorkerBytes;
}

void run_linear(const LinearContext& context, const Rows& x, std::int64_t tokens,
                const Linear& linear, Epilogue epilogue, const RowsFor& out) {
  if (tokens <= 0 || linear.outputs == 0) return;  // all outputs may be on other ranks
  LinearJob job{context, x, tokens, linear, epilogue, out, out.rows};
  check_job(job);
  plan(job);
  context.pool.run(task_count(job),
                   [&](std::int64_t task, int worker) { run_task(job, task, worker); });
  job.bad_row.check(linear.name);
  quantize_whole_rows(context.pool, context.rows, tokens, linear.name, out);
}

std::string describe_linear(const MatmulKernels& matmul, const Linear& linear) {
  const char* tile = is_coded(linear.act) ? matmul.int_tile : matmul.float_tile;
  return std::string(isa_name(matmul.isa)) + " " + linear_text(linear, tile);
}

void run_experts_gated(const LinearContext& context, const Rows& x, const ExpertRoutes& routes,
                       const ExpertLinears& experts, Rows& grouped, Rows& out) {
  require_capacity("experts", routes.rows(), out);
  const bool one_token = routes.tokens == 1, in_place = routes.in_place();
  if (!one_token && !in_place) {
    check_grouped(x, grouped, routes);
    group_rows(context.pool, x, routes, grouped);
  }
  std::deque<Group> groups;
  for (const std::int32_t expert : routes.experts) {
    const Linear& linear = experts.gate_up(expert);
    if (linear.outputs == 0) continue;  // all outputs are on other ranks
    const Slice rows = rows_of_group(routes, expert);
    Rows in = one_token  ? slice_tokens(x, {0, 1})
              : in_place ? slice_tokens(x, rows)
                         : slice_tokens(grouped, rows);
    Group& group = groups.emplace_back(context, std::move(in), rows.count(), linear,
                                       Epilogue::gated(experts.activation), slice_tokens(out, rows),
                                       experts.down(expert));
    check_job(group.job);
  }
  run_all(context.pool, groups);
  for (Group& group : groups) {
    group.job.bad_row.check(group.job.linear.name);
    quantize_whole_rows(context.pool, context.rows, group.job.tokens, group.job.linear.name,
                        group.out);
  }
}

void run_experts_add(const LinearContext& context, const Rows& products, const ExpertRoutes& routes,
                     const ExpertLinear& down, Rows& x) {
  require_capacity("experts", routes.tokens, x);
  std::deque<Group> groups;
  for (const std::int32_t expert : routes.experts) {
    const Linear& linear = down(expert);
    if (linear.outputs == 0) return;  // all outputs are on other ranks
    const Slice rows = rows_of_group(routes, expert);
    Group& group =
        groups.emplace_back(context, slice_tokens(products, rows), rows.count(), linear,
                            Epilogue::add, slice_tokens(x, {0, x.capacity}), RowsConsumer{});
    const auto at = static_cast<std::size_t>(rows.first);
    group.job.scattered = {routes.token.data() + at, routes.weight.data() + at};
    check_job(group.job);
    plan(group.job);
  }
  const AddPlan add = plan_add(context, routes, groups);
  const std::int64_t blocks = (routes.tokens + add.block_tokens - 1) / add.block_tokens;
  context.pool.run(add.unit_tasks * blocks, [&](std::int64_t task, int worker) {
    run_add_task(context, add, groups, task, worker);
  });
}

}  // namespace leq::cpu
