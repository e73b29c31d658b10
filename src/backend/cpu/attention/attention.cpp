#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/attention_span.h"
#include "backend/cpu/attention/kv_pages.h"
#include "backend/cpu/rows/rows.h"
#include "base/error.h"
#include "base/slice.h"

namespace leq::cpu {
namespace {

// Decrements a counter of pending tasks; returns true for the last of these tasks.
bool last_of(std::int32_t& counter) {
  return std::atomic_ref(counter).fetch_sub(1, std::memory_order_acq_rel) == 1;
}

// The state of one call of attention().
class Attention {
 public:
  Attention(const AttentionContext& context, const Rows& qkv, const BatchView& batch,
            const AttentionShape& shape, const KvLayer& kv, const RowsFor& target)
      : context_(context),
        shape_(shape),
        kv_(kv),
        qkv_(qkv),
        target_(target),
        out_(target.rows),
        plan_(plan_attention(context.pool.threads(), batch.tokens, shape, batch.end_position())),
        blocks_(cut_runs(batch, plan_.block_rows, BlockEnds::anywhere)) {
    require_scratch(plan_, context.scratch);
    cut_units();
    shared_ = shared_scratch(plan_, context.scratch);
    values_ = out_.values != nullptr ? out_.values : shared_.values;
    value_stride_ = out_.values != nullptr ? out_.value_stride : width();
  }

  void run() {
    count_outputs();
    if (plan_.split) {
      run_waves();
    } else {
      context_.pool.run(units(), [this](std::int64_t unit, int worker) { whole(unit, worker); });
    }
    bad_.check("output of attention");
    if (quantized_unit(out_.format) == QuantizedUnit::rows) {
      quantize_step(context_.pool, context_.rows, plan_.tokens, "output of attention", target_);
    }
  }

 private:
  // The task of one span (512 positions) of a Unit; `slot`: index among the unit's spans of a wave.
  struct SpanTask {
    std::int64_t unit = 0;
    std::int64_t span = 0;
    std::int64_t slot = 0;
  };

  // A unit of work: a few neighbouring kv heads of one block of rows.
  struct Unit {
    std::int64_t block = 0;
    int kv_head = 0;
    int heads = 0;
  };

  void cut_units() {
    const std::size_t part = std::min(key_head_bytes(kv_.key_type, shape_.head_dim),
                                      value_head_bytes(kv_.value_type, shape_.head_dim));
    for (std::int64_t block = 0; block < std::ssize(blocks_); ++block) {
      const auto most = static_cast<int>(heads_together(
          plan_, shape_, std::ssize(blocks_), blocks_[static_cast<std::size_t>(block)].rows,
          static_cast<std::int64_t>(part)));
      for (int head = 0; head < shape_.kv_heads;) {
        const int heads = alike(head, most);
        if (query_heads(shape_, head).count > 0) units_.push_back({block, head, heads});
        head += heads;
      }
    }
    // Threads take neighbouring tasks, so a head's keys and values remain in their caches. The last
    // rows see the most positions, so that their tasks take longest and run first.
    std::sort(units_.begin(), units_.end(), [](const Unit& a, const Unit& b) {
      return a.kv_head != b.kv_head ? a.kv_head < b.kv_head : a.block > b.block;
    });
  }

  // The number of kv heads from `head` on, at most `most`, that have equally many query heads.
  int alike(int head, int most) const {
    const int readers = query_heads(shape_, head).count;
    int count = 1;
    while (count < most && head + count < shape_.kv_heads &&
           query_heads(shape_, head + count).count == readers) {
      ++count;
    }
    return count;
  }

  std::int64_t units() const { return std::ssize(units_); }
  const Unit& unit_at(std::int64_t unit) const { return units_[static_cast<std::size_t>(unit)]; }
  std::int64_t width() const { return std::int64_t{shape_.heads} * shape_.head_dim; }

  HeadBlock head_of(std::int64_t unit) const {
    return {context_.rows,
            context_.kernels,
            context_.packed,
            plan_,
            shape_,
            kv_,
            qkv_,
            context_.fetch,
            blocks_[static_cast<std::size_t>(unit_at(unit).block)],
            unit_at(unit).kv_head,
            unit_at(unit).heads,
            query_heads(shape_, unit_at(unit).kv_head)};
  }

  WorkerScratch scratch_of(int worker) const {
    return worker_scratch(plan_, shape_, context_.scratch, worker);
  }

  void prepare(const HeadBlock& head, const WorkerScratch& scratch) {
    if (!prepare_queries(head, scratch)) bad_.report(head.block.first_row);
  }

  // Runs all spans of a unit in ascending order.
  void whole(std::int64_t unit, int worker) {
    const HeadBlock head = head_of(unit);
    const WorkerScratch scratch = scratch_of(worker);
    prepare(head, scratch);
    clear_records(head, scratch.records);
    for (std::int64_t span = head.first_span(); span < head.last_span(); ++span) {
      const NextSpan next = {span + 1 < head.last_span() ? &head : nullptr, span + 1};
      run_span(head, span, next, scratch, scratch.span_records);
      merge_records(head, scratch.span_records, scratch.records);
    }
    finish(head, unit, scratch.records);
  }

  // Runs the spans of all units in parallel, in waves of at most wave_spans spans per unit. The
  // task that finishes the last pending span of a unit merges its records in ascending order.
  void run_waves() {
    for (std::int64_t unit = 0; unit < units(); ++unit) {
      const HeadBlock head = head_of(unit);
      clear_records(head, totals_of(head));
    }
    for (std::int64_t wave = 0;; ++wave) {
      const std::vector<SpanTask> tasks = wave_tasks(wave);
      if (tasks.empty()) return;
      context_.pool.run(std::ssize(tasks), [&](std::int64_t task, int worker) {
        one_span(std::span(tasks).subspan(static_cast<std::size_t>(task)), wave, worker);
      });
    }
  }

  std::vector<SpanTask> wave_tasks(std::int64_t wave) {
    std::vector<SpanTask> tasks;
    for (std::int64_t unit = 0; unit < units(); ++unit) {
      const HeadBlock head = head_of(unit);
      const std::int64_t first = head.first_span() + wave * plan_.wave_spans;
      const std::int64_t last = std::min(first + plan_.wave_spans, head.last_span());
      for (std::int64_t span = first; span < last; ++span) {
        tasks.push_back({unit, span, span - first});
      }
      *pending_spans(unit) = static_cast<std::int32_t>(std::max<std::int64_t>(0, last - first));
    }
    return tasks;
  }

  // Runs the first of `tasks` and prefetches for the second, which this thread will probably run.
  void one_span(std::span<const SpanTask> tasks, std::int64_t wave, int worker) {
    const SpanTask& task = tasks.front();
    const SpanTask& then = tasks.size() > 1 ? tasks[1] : task;
    const HeadBlock head = head_of(task.unit), next_head = head_of(then.unit);
    const NextSpan next = {tasks.size() > 1 ? &next_head : nullptr, then.span};
    const WorkerScratch scratch = scratch_of(worker);
    prepare(head, scratch);
    run_span(head, task.span, next, scratch, partial_of(head, task.slot));
    if (!last_of(*pending_spans(task.unit))) return;
    const std::int64_t first = head.first_span() + wave * plan_.wave_spans;
    const std::int64_t last = std::min(first + plan_.wave_spans, head.last_span());
    for (std::int64_t slot = 0; slot < last - first; ++slot) {
      merge_records(head, partial_of(head, slot), totals_of(head));
    }
    if (last == head.last_span()) finish(head, task.unit, totals_of(head));
  }

  // The number of queries that precede the unit's queries in the shared scratch.
  std::int64_t first_query(const HeadBlock& head) const {
    return head.block.first_row * shape_.heads + head.block.rows * head.readers.first;
  }
  float* totals_of(const HeadBlock& head) const {
    return shared_.totals + first_query(head) * plan_.record_floats;
  }
  float* partial_of(const HeadBlock& head, std::int64_t slot) const {
    const std::int64_t records = first_query(head) * plan_.wave_spans + slot * head.queries();
    return shared_.partials + records * plan_.record_floats;
  }

  // counters: the pending kv heads of each [block][output group], then the pending spans per unit.
  std::int32_t* pending_spans(std::int64_t unit) const {
    return shared_.counters + plan_.tokens * plan_.output_groups + unit;
  }
  std::int32_t* pending_heads(std::int64_t block) const {
    return shared_.counters + block * plan_.output_groups;
  }

  // Whether finish() quantizes the output: a group of columns after the last kv head that writes to
  // it, or a row with one scale after all heads. If all rows share a scale, run() quantizes them.
  bool quantizes_here() const {
    const QuantizedUnit unit = quantized_unit(out_.format);
    return unit == QuantizedUnit::columns_128 || unit == QuantizedUnit::row;
  }
  std::int64_t group_columns() const {
    return quantized_unit(out_.format) == QuantizedUnit::columns_128 ? 128 : width();
  }

  // The output columns of the queries of kv heads [first, last).
  Slice columns_of(int first, int last) const {
    const QueryHeads begin = query_heads(shape_, first), end = query_heads(shape_, last - 1);
    return {std::int64_t{begin.first} * shape_.head_dim,
            std::int64_t{end.first + end.count} * shape_.head_dim};
  }
  template <class Visit>
  void each_group(const Slice& columns, Visit visit) const {
    if (columns.empty()) return;
    const std::int64_t last = (columns.last - 1) / group_columns();
    for (std::int64_t group = columns.first / group_columns(); group <= last; ++group) visit(group);
  }

  void count_outputs() {
    if (!quantizes_here()) return;
    for (std::int64_t block = 0; block < std::ssize(blocks_); ++block) {
      std::int32_t* pending = pending_heads(block);
      std::fill_n(pending, plan_.output_groups, 0);
      for (int head = 0; head < shape_.kv_heads; ++head) {
        each_group(columns_of(head, head + 1), [&](std::int64_t group) { ++pending[group]; });
      }
    }
  }

  void finish(const HeadBlock& head, std::int64_t unit, const float* records) {
    finish_records(head, records, values_, value_stride_);
    const int end = head.kv_head + head.heads;
    if (target_.consumer.inv_smooth != nullptr) smooth(head, columns_of(head.kv_head, end));
    if (!quantizes_here()) return;
    std::int32_t* const pending = pending_heads(unit_at(unit).block);
    for (int kv_head = head.kv_head; kv_head < end; ++kv_head) {
      each_group(columns_of(kv_head, kv_head + 1), [&](std::int64_t group) {
        if (last_of(pending[group])) quantize(head.block, group * group_columns(), group_columns());
      });
    }
  }

  void smooth(const HeadBlock& head, const Slice& columns) {
    const RowBlock& block = head.block;
    for (std::int64_t row = block.first_row; row < block.first_row + block.rows; ++row) {
      context_.rows.multiply(target_.consumer.inv_smooth + columns.first, columns.count(),
                             values_ + row * value_stride_ + columns.first);
    }
  }

  void quantize(const RowBlock& block, std::int64_t first, std::int64_t columns) {
    const std::int64_t count = std::min(columns, width() - first);
    for (std::int64_t row = block.first_row; row < block.first_row + block.rows; ++row) {
      const float* x = values_ + row * value_stride_ + first;
      if (!quantize_columns(context_.rows, x, row, first, count, target_)) bad_.report(row);
    }
  }

  const AttentionContext& context_;
  const AttentionShape& shape_;
  const KvLayer& kv_;
  const Rows& qkv_;
  const RowsFor& target_;
  const Rows& out_;  // target_.rows
  AttentionPlan plan_;
  std::vector<RowBlock> blocks_;
  std::vector<Unit> units_;
  SharedScratch shared_;
  float* values_ = nullptr;
  std::int64_t value_stride_ = 0;
  FirstBadRow bad_;
};

}  // namespace

void attention(const AttentionContext& context, const Rows& qkv, const BatchView& batch,
               const AttentionShape& shape, const KvLayer& kv, const RowsFor& out) {
  if (shape.heads == 0) return;  // all heads are on other ranks
  Attention(context, qkv, batch, shape, kv, out).run();
}

}  // namespace leq::cpu
