#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/kv_pages.h"
#include "backend/cpu/delta/delta.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/matmul/linear.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/rows/rows.h"
#include "backend/rows_slice.h"
#include "backend/step_times.h"
#include "base/float_math.h"
#include "base/thread_pool.h"

namespace leq {

CpuLayout::CpuLayout(int threads) : Layout(1), threads_(threads > 0 ? threads : usable_cores()) {}

RowsFormat CpuLayout::format_for(const Linear& consumer) const {
  return cpu::rows_format(consumer);
}

RowsLayout CpuLayout::rows(std::int64_t capacity, std::int64_t width,
                           const RowsFormat& format) const {
  return cpu::rows_layout(capacity, width, format);
}

std::size_t CpuLayout::page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) const {
  return cpu::page_bytes(part, type, kv_heads, head_dim);
}

std::size_t CpuLayout::scratch_bytes(std::int64_t tokens, const AttentionShape& shape,
                                     std::int64_t context) const {
  return linear_scratch_bytes() + cpu::attention_scratch_bytes(threads_, tokens, shape, context);
}

std::size_t CpuLayout::delta_scratch_bytes(std::int64_t, const DeltaShape& shape) const {
  return linear_scratch_bytes() + cpu::delta_scratch_bytes(threads_, shape);
}

std::size_t CpuLayout::linear_scratch_bytes() const { return cpu::linear_scratch_bytes(threads_); }

namespace {

// Rows per task of a loop over rows, so many that the overhead of a task is small.
constexpr std::int64_t kRowsPerTask = 4;

std::optional<ThreadPlaces> places_of(const CpuOptions& options) {
  if (options.numa == NumaMode::off) return std::nullopt;
  return place_threads(machine_topology(options.numa), threads_for(options.threads, options.numa));
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuOptions& options, const std::optional<ThreadPlaces>& places)
      : memory_(places ? cpu::WeightPlaces{*places, options.numa} : cpu::WeightPlaces{}),
        isa_(options.isa),
        pool_(places ? ThreadPool(*places) : ThreadPool(options.threads)),
        layout_(pool_.threads()),
        rows_(cpu::row_kernels(options.isa)),
        attention_(cpu::attention_kernels(options.isa)),
        packed_(cpu::packed_kernels(options.isa)),
        delta_(cpu::delta_kernels(options.isa)),
        matmul_(cpu::matmul_kernels(options.isa)),
        fetch_(options.fetch),
        worker_rows_(static_cast<std::size_t>(pool_.threads())) {}

  std::string name() const override {
    std::string text = "cpu " + std::string(isa_name(isa_)) + ", " +
                       std::to_string(pool_.threads()) +
                       (pool_.threads() == 1 ? " thread" : " threads");
    const int working = pool_.working();
    if (working < pool_.threads()) text += " (" + std::to_string(working) + " at work)";
    if (memory_.nodes() == 1) text += " on one memory node";
    if (memory_.nodes() > 1) text += " on " + std::to_string(memory_.nodes()) + " memory nodes";
    return text;
  }
  std::string describe(const Linear& linear) const override {
    return cpu::describe_linear(matmul_, linear);
  }

  DeviceMemory& memory() override { return memory_; }
  const Layout& layout() const override { return layout_; }

  void assign(std::span<const float> values, Rows& x) override {
    check_assign(values, x);
    for (std::int64_t t = 0; t < std::ssize(values) / x.width; ++t) {
      std::copy_n(values.data() + t * x.width, x.width, x.values + t * x.value_stride);
    }
  }

  void embed(const Embedding& embedding, Rows& x) override {
    const auto span = clock_.in(StepPart::load, [&] { return moved_bytes(embedding); });
    check_embedding(embedding, x, 0);
    if (embedding.positions != nullptr) grow_worker_rows(x.width);
    each_row(std::ssize(embedding.ids), [&](std::int64_t t, int worker) {
      const auto token = static_cast<std::size_t>(t);
      float* row = x.values + t * x.value_stride;
      cpu::gather_row(embedding.tokens, embedding.ids[token], row);
      if (embedding.scale != 1) {
        for (std::int64_t k = 0; k < x.width; ++k) row[k] *= embedding.scale;
      }
      if (embedding.positions == nullptr) return;
      float* position = worker_row(worker);
      cpu::gather_row(*embedding.positions, embedding.at[token], position);
      rows_.add(position, x.width, row);
    });
  }

  void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) override {
    check_gather(x, rows, out);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(x.values + rows[i] * x.value_stride, x.width,
                  out.values + static_cast<std::int64_t>(i) * out.value_stride);
    }
  }

  void norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& target) override {
    Rows& out = target.rows;
    const auto span = clock_.in(StepPart::quant,
                                [&] { return moved_bytes(x, tokens) + moved_bytes(out, tokens); });
    check_norm(x, tokens, norm, target);
    const cpu::QuantizedUnit unit = cpu::quantized_unit(out.format);
    if (out.values == nullptr) grow_worker_rows(out.width);
    cpu::FirstBadRow bad;
    each_row(tokens, [&](std::int64_t t, int worker) {
      const float* in = x.values + t * x.value_stride;
      float* row = out.values != nullptr ? out.values + t * out.value_stride : worker_row(worker);
      if (norm.kind == NormKind::rms) {
        rows_.rms_norm(in, norm.gain, norm.eps, norm.width, row);
      } else {
        rows_.layer_norm(in, norm.gain, norm.beta, norm.eps, norm.width, row);
      }
      const float* factors = target.consumer.inv_smooth;
      if (factors != nullptr) rows_.multiply(factors, out.width, row);
      if (unit == cpu::QuantizedUnit::nothing || unit == cpu::QuantizedUnit::rows) return;
      if (!cpu::quantize_columns(rows_, row, t, 0, out.width, target)) bad.report(t);
    });
    bad.check("norm");
    if (unit == cpu::QuantizedUnit::rows) {
      cpu::quantize_step(pool_, rows_, tokens, "norm", target);
    }
  }

  void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
              const RowsFor& out) override {
    const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(linear); });
    cpu::run_linear(linear_context(), x, tokens, linear, epilogue, out);
  }

  void add_rows(const Rows& y, std::int64_t tokens, float scale, Rows& x) override {
    const auto span = clock_.in(StepPart::quant, [&] { return 3 * moved_bytes(x, tokens); });
    check_add_rows(y, tokens, x);
    each_row(tokens, [&](std::int64_t t, int) {
      float* row = x.values + t * x.value_stride;
      rows_.add(y.values + t * y.value_stride, x.width, row);
      if (scale == 1) return;
      for (std::int64_t i = 0; i < x.width; ++i) row[i] *= scale;
    });
  }

  void multiply_rows(const Rows& y, std::int64_t tokens, Rows& x) override {
    const auto span = clock_.in(StepPart::quant, [&] { return 3 * moved_bytes(x, tokens); });
    check_add_rows(y, tokens, x);
    each_row(tokens, [&](std::int64_t t, int) {
      const float* from = y.values + t * y.value_stride;
      float* row = x.values + t * x.value_stride;
      for (std::int64_t i = 0; i < x.width; ++i) row[i] *= from[i];
    });
  }

  void cap_logits(Rows& logits, std::int64_t rows, float scale, float cap) override {
    const auto span = clock_.in(StepPart::sample, [&] { return 2 * moved_bytes(logits, rows); });
    require_capacity("cap of logits", rows, logits);
    constexpr std::int64_t kColumns = 4096;  // columns of a task
    const std::int64_t parts = (logits.width + kColumns - 1) / kColumns;
    pool_.run(rows * parts, [&](std::int64_t task, int) {
      const std::int64_t first = task % parts * kColumns;
      const std::int64_t count = std::min(kColumns, logits.width - first);
      float* row = logits.values + task / parts * logits.value_stride + first;
      for (std::int64_t i = 0; i < count; ++i) row[i] = capped(row[i], scale, cap);
    });
  }

  void route(const Rows& x, std::int64_t tokens, const Linear& router, Rows& logits,
             const Routing& routing, ExpertRoutes& routes, ExpertRoutes* shared) override {
    linear(x, tokens, router, Epilogue::none, logits);
    const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(logits, tokens); });
    route_rows(logits, tokens, routing, router.name, routes, shared);
  }

  void experts_gated(const Rows& x, const ExpertRoutes& routes, const ExpertLinears& experts,
                     Rows& grouped, Rows& out) override {
    const auto span =
        clock_.in(StepPart::gemm, [&] { return moved_bytes(routes, experts.gate_up); });
    cpu::run_experts_gated(linear_context(), x, routes, experts, grouped, out);
  }

  void experts_add(std::span<const ExpertProducts> parts, bool fresh, Rows& x) override {
    if (fresh) {
      each_row(parts.front().routes.tokens, [&](std::int64_t t, int) {
        std::fill_n(x.values + t * x.value_stride, x.width, 0.0f);
      });
    }
    for (const ExpertProducts& part : parts) {
      const auto span =
          clock_.in(StepPart::gemm, [&] { return moved_bytes(part.routes, part.down); });
      cpu::run_experts_add(linear_context(), part.rows, part.routes, part.down, x);
    }
  }

  void quantize_kv_blocks(const BatchView& batch, const AttentionShape& shape,
                          std::span<const KvLayer> layers) override {
    const auto span = clock_.in(StepPart::attention, [] { return std::size_t{0}; });
    cpu::quantize_kv_blocks(attention_context(), batch, shape, layers);
  }

  void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape, RopeTable& rope,
                   const KvLayer& kv) override {
    const auto span =
        clock_.in(StepPart::attention, [&] { return moved_bytes(qkv, batch.tokens); });
    check_qkv(qkv, batch, shape);
    cpu::rope_append(attention_context(), qkv, batch, shape, rope, kv);
  }

  void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                 const KvLayer& kv, const RowsFor& out) override {
    const auto span = clock_.in(StepPart::attention, [&] { return moved_bytes(batch, shape, kv); });
    check_attention(qkv, batch, shape, out);
    cpu::attention(attention_context(), qkv, batch, shape, kv, out);
  }

  void delta_net(Rows& mixed, Rows& gates, const BatchView& batch, const DeltaShape& shape,
                 const RowsFor& out) override {
    const auto span = clock_.in(StepPart::delta, [&] { return moved_bytes(batch, shape); });
    check_delta_net(mixed, gates, batch, shape, out);
    cpu::delta_net({pool_, rows_, delta_, after_linears()}, mixed, gates, batch, shape, out);
  }

  void short_conv(Rows& mixed, const BatchView& batch, const ShortConvShape& shape,
                  const RowsFor& out) override {
    const auto span = clock_.in(StepPart::delta, [&] { return moved_bytes(mixed, batch.tokens); });
    check_short_conv(mixed, batch, shape, out);
    cpu::short_conv({pool_, rows_, delta_, {}}, mixed, batch, shape, out);
  }

  void gather(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared) override {
    if (shared.ranks.size() == 1) return;
    const auto span = clock_.in(StepPart::comm, [&] { return moved_bytes(out, tokens); });
    share_rows(out, tokens, shared);
    if (!shared.received()) return;
    cpu::quantize_whole_rows(pool_, rows_, tokens, shared.site, out);
  }

  void sample(const Rows& logits, std::span<const SampleRequest> requests,
              std::span<std::int32_t> drawn) override {
    const auto span =
        clock_.in(StepPart::sample, [&] { return moved_bytes(logits, std::ssize(requests)); });
    check_sample(logits, requests);
    check_drawn(requests, drawn);
    const auto row = [&](std::int64_t i) {
      return std::span<const float>(logits.values + i * logits.value_stride,
                                    static_cast<std::size_t>(logits.width));
    };
    samplers_.resize(static_cast<std::size_t>(pool_.threads()));
    pool_.run(std::ssize(requests), [&](std::int64_t i, int worker) {
      drawn[static_cast<std::size_t>(i)] = samplers_[static_cast<std::size_t>(worker)].draw(
          row(i), requests[static_cast<std::size_t>(i)]);
    });
  }

  void download(const Rows& x, std::int64_t tokens, std::span<float> out) override {
    check_download(x, tokens, out);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::copy_n(x.values + t * x.value_stride, x.width, out.data() + t * x.width);
    }
  }
  void synchronize() override {}

  void start_times() override { clock_.start(); }
  StepTimes stop_times() override { return clock_.stop(); }

 private:
  cpu::LinearContext linear_context() {
    const std::size_t needed = layout_.linear_scratch_bytes();
    return {pool_, rows_, matmul_, memory_.scratch(needed).first(needed), fetch_};
  }

  // Scratch for attention and the delta net, which follows the scratch of the linears.
  std::span<std::byte> after_linears() {
    const std::span<std::byte> scratch = memory_.scratch(0);
    return scratch.subspan(std::min(scratch.size(), layout_.linear_scratch_bytes()));
  }
  cpu::AttentionContext attention_context() {
    return {pool_, rows_, attention_, packed_, after_linears(), fetch_};
  }

  template <class Body>
  void each_row(std::int64_t rows, Body&& body) {
    pool_.run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int worker) {
      const std::int64_t last = std::min((task + 1) * kRowsPerTask, rows);
      for (std::int64_t row = task * kRowsPerTask; row < last; ++row) body(row, worker);
    });
  }

  // Grows the row buffer of each thread: a few kilobytes, not counted as used memory.
  void grow_worker_rows(std::int64_t width) {
    const auto floats = static_cast<std::size_t>(width);
    for (auto& row : worker_rows_) {
      if (row.size() < floats) row.resize(floats);
    }
  }
  float* worker_row(int worker) { return worker_rows_[static_cast<std::size_t>(worker)].data(); }

  cpu::Memory memory_;
  Isa isa_;
  ThreadPool pool_;
  CpuLayout layout_;
  const cpu::RowKernels& rows_;
  const cpu::AttentionKernels& attention_;
  const cpu::PackedKernels& packed_;
  const cpu::DeltaKernels& delta_;
  const cpu::MatmulKernels& matmul_;
  Fetch fetch_;
  std::vector<std::vector<float>> worker_rows_;
  std::vector<HostSampler> samplers_;  // one for each thread
  PartClock clock_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options, places_of(options));
}

}  // namespace leq
