#include "backend/cpu/matmul/experts.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/matmul/linear_job.h"
#include "backend/cpu/rows/quantize_rows.h"
#include "backend/rows_slice.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

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

}  // namespace

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
                                       Epilogue::gated(Activation::silu), slice_tokens(out, rows),
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

namespace {

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
