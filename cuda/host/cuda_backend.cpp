#include "cuda/host/cuda_backend.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/checks.h"
#include "backend/rows_slice.h"
#include "base/error.h"
#include "cuda/host/batch_lists.h"
#include "cuda/host/device_experts.h"
#include "cuda/host/device_matmul.h"
#include "cuda/host/device_memory.h"
#include "cuda/host/device_sampler.h"
#include "cuda/host/device_weights.h"
#include "cuda/host/faults.h"
#include "cuda/host/link_ranks.h"
#include "cuda/host/matmul_arguments.h"
#include "cuda/host/mixer_arguments.h"
#include "cuda/host/part_events.h"
#include "cuda/host/pending_samples.h"
#include "cuda/host/row_blocks.h"
#include "cuda/host/row_download.h"
#include "cuda/host/row_finish.h"
#include "cuda/host/staging.h"
#include "cuda/host/step_graphs.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/gpu_layout.h"
#include "cuda/layout/kv_codes.h"

namespace leq::LEQ_GPU {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, std::string name, const GpuOptions& options)
      : name_(std::move(name)),
        device_(device),
        stream_owner_(rt::make_stream(device)),
        stream_(*stream_owner_),
        memory_(device, stream_, options.memory_cap),
        layout_(options.arithmetic),
        staging_(device, stream_),
        lists_(staging_),
        faults_(device, stream_),
        graphs_(device, stream_, staging_),
        clock_(device, stream_),
        rows_(device, stream_, memory_, faults_, clock_),
        matmul_(stream_, rows_, clock_),
        sampler_(device, stream_, staging_),
        downloads_(stream_, faults_),
        pending_(device, stream_, sampler_, faults_),
        experts_(device, stream_) {}

  std::string name() const override {
    return name_ + " (" + rt::device_of(stream_).name + (is_exact() ? ", exact" : "") + ")";
  }
  std::string describe(const Linear& linear) const override {
    const QuantScheme& scheme = linear.segments[0].weight.scheme;
    IntMatmul one;
    one.segments[0].weight.bits = scheme.bits;
    one.tokens = 1;
    const char* kernel = is_coded(linear.act) ? describe_int_matmul(one)
                                              : describe_float_matmul(scheme.kind == CodeKind::f32);
    return name_ + " " + linear_text(linear, kernel);
  }

  DeviceMemory& memory() override { return memory_; }
  const Layout& layout() const override { return layout_; }

  void assign(std::span<const float> values, Rows& x) override {
    check_assign(values, x);
    matmul_.launch_held();
    const auto width = static_cast<std::size_t>(x.width);
    for (std::size_t at = 0; at < values.size(); at += width) {
      rt::copy_on_device(x.values + static_cast<std::int64_t>(at / width) * x.value_stride,
                         staging_.push(values.subspan(at, width)), width * sizeof(float), stream_);
    }
  }

  void embed(const Embedding& embedding, Rows& x) override {
    const auto span = clock_.in(StepPart::load, [&] { return moved_bytes(embedding); });
    check_embedding(embedding, x, sampler_.rows());
    matmul_.launch_held();
    const std::int32_t* const drawn = sampler_.tokens();
    gather_table(embedding.tokens, on_device(embedding.ids), drawn, embedding.ids.size(), x,
                 Gather::store, embedding.scale, stream_);
    if (embedding.positions == nullptr) return;
    gather_table(*embedding.positions, on_device(embedding.at), drawn, embedding.at.size(), x,
                 Gather::add, 1, stream_);
  }

  void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) override {
    check_gather(x, rows, out);
    matmul_.launch_held();
    launch_gather({float_rows(x), float_rows(out), on_device(rows), std::ssize(rows), x.width},
                  stream_);
  }

  void norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& target) override {
    const Rows& out = target.rows;
    const auto span = clock_.in(StepPart::quant,
                                [&] { return moved_bytes(x, tokens) + moved_bytes(out, tokens); });
    check_norm(x, tokens, norm, target);
    require_shared_row("norm", norm.width);
    NormArguments a;
    a.x = float_rows(x);
    a.out = float_rows(out);
    a.tokens = tokens;
    a.width = norm.width;
    a.form = norm.kind == NormKind::rms ? NormForm::rms : NormForm::layer;
    a.gain = norm.gain;
    a.beta = norm.beta;
    a.inv_smooth = target.consumer.inv_smooth;
    a.eps = norm.eps;
    const bool step = RowFinish::is_long_step(out, tokens);
    if (!step) a.quantize = rows_.quantize_as(target, "norm");
    if (!matmul_.join(a)) launch_norm(a, stream_);
    if (step) rows_.quantize_step(target, tokens, "norm");
  }

  void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
              const RowsFor& target) override {
    const Rows& out = target.rows;
    if (tokens <= 0 || linear.outputs == 0) return;  // other ranks have all outputs
    check_linear_inputs(linear, x);
    check_linear_outputs(linear, tokens, x, epilogue, target);
    const int terms = layout_.format_for(linear).terms;
    ensure(x.format.terms == terms, linear.name, ": expected inputs in ", terms, " terms, found ",
           x.format.terms);
    ensure(out.values != nullptr, linear.name, ": the GPU keeps the f32 values of its outputs");
    if (matmul_.multiply(x, tokens, linear, epilogue, target)) return;
    if (rows_.finishes(target)) {
      matmul_.launch_held();
      rows_.finish(target, tokens, linear.name);
    }
  }

  void add_rows(const Rows& y, std::int64_t tokens, float scale, Rows& x) override {
    const auto span = clock_.in(StepPart::quant, [&] { return 3 * moved_bytes(x, tokens); });
    check_add_rows(y, tokens, x);
    matmul_.launch_held();
    launch_add_rows({float_rows(x), float_rows(y), tokens, x.width, scale}, stream_);
  }

  void multiply_rows(const Rows& y, std::int64_t tokens, Rows& x) override {
    const auto span = clock_.in(StepPart::quant, [&] { return 3 * moved_bytes(x, tokens); });
    check_add_rows(y, tokens, x);
    matmul_.launch_held();
    launch_add_rows({float_rows(x), float_rows(y), tokens, x.width, 1, true}, stream_);
  }
  void cap_logits(Rows& logits, std::int64_t rows, float scale, float cap) override {
    const auto span = clock_.in(StepPart::sample, [&] { return 2 * moved_bytes(logits, rows); });
    require_capacity("cap of logits", rows, logits);
    matmul_.launch_held();
    launch_cap_rows({float_rows(logits), rows, logits.width, scale, cap}, stream_);
  }

  void route(const Rows& x, std::int64_t tokens, const Linear& router, Rows& logits,
             const Routing& routing, ExpertRoutes& routes, ExpertRoutes* shared) override {
    const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(router); });
    check_linear_inputs(router, x);
    matmul_.launch_held();
    check_linear_outputs(router, tokens, x, Epilogue::none, logits);
    RoutedLinear a;
    a.matmul = matmul_arguments<FloatMatmul>(router, tokens, Epilogue::none, logits);
    a.matmul.values = float_rows(x);
    a.tickets = rows_.tickets();
    a.fault = faults_.watch(router.name);
    experts_.route(a, logits, routing, routes, shared);
  }
  void experts_gated(const Rows& x, const ExpertRoutes& routes, const ExpertLinears& experts,
                     Rows& grouped, Rows& out) override {
    const Linear& first = experts.gate_up(0);
    const RowsFor target(out, experts.down(0));
    expert_products_ = plain_rows(grouped);
    if (routes.in_place())
      return linear(x, routes.tokens, first, Epilogue::gated(experts.activation), target);
    check_linear_inputs(first, x);
    matmul_.launch_held();
    DeviceExperts::check_readers(experts, std::ssize(routes.first) - 1);
    require_capacity(first.name, routes.rows(), out);
    const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(first); });
    const bool in_groups = experts_.group(x, routes, first, grouped);
    const bool coded = experts_.multiply(
        in_groups ? grouped : x, routes, experts.gate_up, Epilogue::gated(experts.activation), out,
        [&] { return rows_.codes_of_outputs(target, first.name); });
    if (!coded) rows_.finish(target, routes.rows(), first.name);
  }
  // The outputs of all parts are in `expert_products_`, one part after another.
  void experts_add(std::span<const ExpertProducts> parts, bool fresh, Rows& x) override {
    const AddExpertsArguments sum =
        experts_.sum_of(expert_products_, parts.front().routes, parts.size() > 1, fresh, x);
    bool added = x.width == 0;  // this rank has no columns
    std::int64_t first_row = 0;
    for (const auto& [products, routes, down] : parts) {
      Rows out = slice_tokens(expert_products_, {first_row, first_row + routes.rows()});
      first_row += routes.rows();
      const Linear& first = down(0);
      if (routes.in_place()) {
        linear(products, routes.tokens, first, Epilogue::none, out);
        continue;
      }
      const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(first); });
      check_linear_inputs(first, products);
      matmul_.launch_held();
      added |= experts_.multiply_and_add(products, routes, down, out, sum, rows_.tickets());
    }
    if (!added && !matmul_.join(sum)) launch_add_experts(sum, stream_);
  }

  void delta_net(Rows& mixed, Rows& gates, const BatchView& batch, const DeltaShape& shape,
                 const RowsFor& out) override {
    constexpr std::string_view kSite = "output of the delta net";
    check_delta_net(mixed, gates, batch, shape, out);
    matmul_.launch_held();
    if (shape.value_heads == 0) return;  // other ranks have all heads
    const auto span =
        clock_.in(StepPart::attention, [&] { return moved_bytes(mixed, batch.tokens); });
    DeltaArguments a = delta_arguments(shape);
    a.mixed = float_rows(mixed);
    a.gates = {gates.values + shape.first_value_head(), gates.value_stride};
    a.out = float_rows(out);
    a.batch = on_device(batch, {});
    a.scratch = reinterpret_cast<float*>(
        memory_.scratch(layout_.delta_scratch_bytes(batch.tokens, shape)).data());
    a.fault = faults_.watch("input of the delta net");
    a.exact = is_exact();
    if (makes_codes(a)) a.codes = rows_.codes_of_outputs(out, kSite);
    launch_delta_net(a, stream_);
    if (!a.codes.exist()) rows_.finish(out, batch.tokens, kSite);
  }

  void short_conv(Rows& mixed, const BatchView& batch, const ShortConvShape& shape,
                  const RowsFor& out) override {
    check_short_conv(mixed, batch, shape, out);
    matmul_.launch_held();
    if (shape.channels == 0) return;  // other ranks have all channels
    constexpr std::string_view kSite = "output of the short convolution";
    const auto span =
        clock_.in(StepPart::attention, [&] { return moved_bytes(mixed, batch.tokens); });
    ShortConvArguments a = short_conv_arguments(shape);
    a.mixed = float_rows(mixed);
    a.out = float_rows(out);
    a.batch = on_device(batch, {});
    a.fault = faults_.watch("input of the short convolution");
    a.codes = rows_.codes_of_outputs(out, kSite);
    launch_short_conv(a, stream_);
    if (!a.codes.exist()) rows_.finish(out, batch.tokens, kSite);
  }

  void quantize_kv_blocks(const BatchView& batch, const AttentionShape& shape,
                          std::span<const KvLayer> layers) override {
    matmul_.launch_held();
    if (shape.kv_heads == 0 || layers.empty() || !layers[0].residual.copies()) return;
    const auto span = clock_.in(StepPart::attention, [] { return std::size_t{0}; });
    check_pages(batch);
    quantize_kv(on_device(batch, layers[0]), shape, layers, WholeBlocks::before_the_batch, stream_);
  }

  void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape, RopeTable& rope,
                   const KvLayer& kv) override {
    const auto span =
        clock_.in(StepPart::attention, [&] { return moved_bytes(qkv, batch.tokens); });
    if (shape.kv_heads == 0) return;  // other ranks have all heads
    check_qkv(qkv, batch, shape);
    check_pages(batch);
    if (shape.rotary) {
      check_rope(rope, shape, batch.end_position());
      fill_rope(rope, batch.end_position(), staging_, stream_);
    }
    check_query_factors(rope, shape, batch.end_position());
    RopeAppendArguments a = rope_append_arguments(shape, rope, kv);
    a.qkv = float_rows(qkv);
    a.batch = on_device(batch, kv);
    a.fault = faults_.watch("input of attention");
    if (!matmul_.join(a)) launch_rope_append(a, stream_);
    if (shape.queries_only) return;
    quantize_kv(a.batch, shape, {&kv, 1}, WholeBlocks::by_the_batch, stream_);
  }

  void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                 const KvLayer& kv, const RowsFor& out) override {
    if (shape.heads == 0) return;
    check_attention(qkv, batch, shape, out);
    matmul_.launch_held();
    constexpr std::string_view kSite = "output of attention";
    if (!attend(qkv, batch, shape, kv, out, kSite)) rows_.finish(out, batch.tokens, kSite);
  }

  // The window is allocated now, because an allocation while a peer waits would wait for the peer.
  std::unique_ptr<Communicator> connect(Communicator& ranks, std::span<std::byte> window) override {
    downloads_.reserve();
    return link_ranks(ranks, device_, stream_, window);
  }

  // A rank's own columns are finished already, except codes and terms (16-bit parts) of whole rows.
  void gather(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared) override {
    if (shared.ranks.size() == 1) return;
    matmul_.launch_held();
    const auto span = clock_.in(StepPart::comm, [&] { return moved_bytes(out, tokens); });
    share_rows(out, tokens, shared);
    if (!shared.received() || coded_by_columns(out.rows.format)) return;
    RowsConsumer consumer = out.consumer;
    consumer.inv_smooth = nullptr;
    rows_.finish({out.rows, consumer}, tokens, shared.site);
  }

  void sample(const Rows& logits, std::span<const SampleRequest> requests,
              std::span<std::int32_t> drawn) override {
    const auto span =
        clock_.in(StepPart::sample, [&] { return moved_bytes(logits, std::ssize(requests)); });
    check_sample(logits, requests);
    matmul_.launch_held();
    check_drawn(requests, drawn);
    sampler_.launch(float_rows(logits), logits.width, requests);
    synchronize();
    std::ranges::copy(sampler_.drawn(), drawn.begin());
    for (std::size_t row = 0; row < requests.size(); ++row) {
      if (!draws_on_host(requests[row])) continue;
      drawn[row] =
          host_sampler_.draw(downloads_.row(logits, static_cast<std::int64_t>(row)), requests[row]);
    }
  }

  std::unique_ptr<PendingSample> begin_sample(const Rows& logits,
                                              std::span<const SampleRequest> requests) override {
    const auto span =
        clock_.in(StepPart::sample, [&] { return moved_bytes(logits, std::ssize(requests)); });
    check_sample(logits, requests);
    matmul_.launch_held();
    return pending_.begin(float_rows(logits), logits.width, requests);
  }

  // A replay does not check pages or fill the rotary table, so this function does both. Recordings
  // must not contain timing events, so a step that is timed is not replayed.
  void step(const Step& step, const std::function<void()>& operations) override {
    if (clock_.running()) return operations();
    check_pages(step.batch);
    for (RopeTable& rope : step.ropes) {
      if (rope.inv_freq.empty()) continue;
      fill_rope(rope, std::min(step.batch.end_position(), rope.context), staging_, stream_);
    }
    drop_stale_graphs();
    graphs_.run(step, [&] {
      struct Ending {
        DeviceMatmul& matmul;
        ~Ending() { matmul.drop_held(); }
      } ending{matmul_};
      matmul_.hold();
      operations();
      matmul_.launch_held();
      drop_stale_graphs();
    });
  }
  void record_steps(bool on) override { graphs_.enable(on); }
  StepCounts step_counts() const override { return graphs_.counts(); }

  void download(const Rows& x, std::int64_t tokens, std::span<float> out) override {
    check_download(x, tokens, out);
    matmul_.launch_held();
    downloads_.download(x, tokens, out);
  }

  void synchronize() override {
    matmul_.launch_held();
    faults_.synchronize();
  }

  void start_times() override {
    synchronize();
    clock_.start();
  }
  StepTimes stop_times() override {
    synchronize();
    return clock_.stop();
  }

 private:
  bool is_exact() const { return layout_.arithmetic() == Arithmetic::exact; }

  // Recordings contain device addresses, so they are dropped if memory was allocated or freed.
  void drop_stale_graphs() {
    if (std::exchange(memory_changes_, memory_.changes()) != memory_.changes()) graphs_.clear();
  }

  const std::int32_t* on_device(std::span<const std::int32_t> list) {
    const std::int32_t* slot = graphs_.slot_of(list);
    return slot != nullptr ? slot : staging_.push(list);
  }
  AttentionBatch on_device(const BatchView& batch, const KvLayer& kv) {
    const AttentionBatch* of_step = graphs_.batch_of(batch);
    AttentionBatch there =
        of_step != nullptr ? *of_step : lists_.push(batch, {copies_of(kv), kv.frames});
    if (kv.in_frames) there.runs += there.run_count;
    return there;
  }
  // Norm kernels keep a row of f32 in shared memory, which limits the width of rows.
  void require_shared_row(const char* what, std::int64_t width) const {
    const std::size_t limit = rt::device_of(stream_).shared_limit_bytes - 1024;
    require(static_cast<std::size_t>(width) * sizeof(float) <= limit, what, ": rows of ", width,
            ", this GPU takes up to ", limit / sizeof(float), "; use ", Setting{"device"}, " cpu");
  }

  // Returns whether the kernel also wrote the reader's codes or terms (f16 or bf16 parts).
  bool attend(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
              const KvLayer& kv, const RowsFor& target, std::string_view site) {
    const auto span = clock_.in(StepPart::attention, [&] { return moved_bytes(batch, shape, kv); });
    AttentionArguments a;
    a.qkv = float_rows(qkv);
    a.out = float_rows(target.rows);
    a.batch = on_device(batch, kv);
    a.heads = heads_of(shape);
    a.keys = pages_of(kv, KvPart::keys, shape);
    a.values = pages_of(kv, KvPart::values, shape);
    a.copied = copied_of(kv);
    a.exact = is_exact();
    a.codes.tickets = rows_.tickets();
    if (makes_codes(a) && !shape.output_gate) {
      a.codes = rows_.codes_of_outputs(target, site);
    }
    const std::size_t scratch = layout_.scratch_bytes(batch.tokens, shape, a.batch.end);
    a.scratch = reinterpret_cast<float*>(memory_.scratch(scratch).data());
    launch_attention(a, stream_);
    if (!shape.output_gate) return a.codes.exist();
    const FloatRows gates = {a.qkv.values + gates_at(shape), a.qkv.stride};
    const OutputCodes codes = rows_.codes_of_outputs(target, site);
    launch_gate_outputs({a.out, gates, batch.tokens, target.rows.width, codes}, stream_);
    return codes.exist();
  }

  std::string name_;
  int device_;
  rt::StreamOwner stream_owner_;
  rt::Stream& stream_;
  GpuMemory memory_;
  GpuLayout layout_;
  std::uint64_t memory_changes_ = 0;
  Staging staging_;
  BatchLists lists_;
  Faults faults_;
  StepGraphs graphs_;
  PartEvents clock_;
  RowFinish rows_;
  DeviceMatmul matmul_;
  DeviceSampler sampler_;
  RowDownload downloads_;
  PendingSamples pending_;
  HostSampler host_sampler_;
  DeviceExperts experts_;
  Rows expert_products_;  // [R, W] f32; from experts_gated to experts_add
};

}  // namespace

std::unique_ptr<Backend> make_device_backend(int device, std::string name,
                                             const GpuOptions& options) {
  return std::make_unique<CudaBackend>(device, std::move(name), options);
}

}  // namespace leq::LEQ_GPU
