#include "cuda/host/cuda_backend.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "backend/checks.h"
#include "backend/linear_text.h"
#include "backend/share_rows.h"
#include "base/error.h"
#include "cuda/host/attention_arguments.h"
#include "cuda/host/batch_lists.h"
#include "cuda/host/delta_arguments.h"
#include "cuda/host/device_experts.h"
#include "cuda/host/device_memory.h"
#include "cuda/host/device_sampler.h"
#include "cuda/host/device_scales.h"
#include "cuda/host/device_weights.h"
#include "cuda/host/faults.h"
#include "cuda/host/float_forms.h"
#include "cuda/host/link_ranks.h"
#include "cuda/host/matmul_arguments.h"
#include "cuda/host/part_events.h"
#include "cuda/host/pending_samples.h"
#include "cuda/host/row_blocks.h"
#include "cuda/host/staging.h"
#include "cuda/host/step_graphs.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/gpu_layout.h"
#include "cuda/layout/kv_codes.h"

namespace leq::LEQ_GPU {
namespace {

// Positions of the rotary table that are filled at a time.
constexpr std::int64_t kRopePositions = 256;
// Rows come back through pinned memory of this size, or of one row.
constexpr std::size_t kDownloadBytes = std::size_t{8} << 20;

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
        tickets_(device, kTickets * sizeof(unsigned)),
        scales_(device, stream_),
        sampler_(device, stream_, staging_),
        wgmma_adds_as_mma_(finds_equal_forms(device, stream_)),
        pending_(device, stream_, sampler_, faults_),
        experts_(device, stream_) {
    rt::fill_zero(tickets_.data(), kTickets * sizeof(unsigned), stream_);
  }

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
    const auto width = static_cast<std::size_t>(x.width);
    for (std::size_t at = 0; at < values.size(); at += width) {
      rt::copy_on_device(x.values + static_cast<std::int64_t>(at / width) * x.value_stride,
                         staging_.push(values.subspan(at, width)), width * sizeof(float), stream_);
    }
  }

  void embed(const Embedding& embedding, Rows& x) override {
    const auto span = clock_.in(StepPart::load, [&] { return moved_bytes(embedding); });
    check_embedding(embedding, x, sampler_.rows());
    gather_table(embedding.tokens, embedding.ids, x, Gather::store);
    if (embedding.positions == nullptr) return;
    gather_table(*embedding.positions, embedding.at, x, Gather::add);
  }

  void rotate(Rows& x, std::int64_t tokens, const RotationTable& rotation,
              Direction direction) override {
    const auto span = clock_.in(StepPart::quant, [&] { return 2 * moved_bytes(x, tokens); });
    check_rotation(x, tokens, rotation);
    require_shared_row("rotate", x.width);
    launch_rotate({float_rows(x), tokens, x.width, rotation.block,
                   reinterpret_cast<const float*>(rotation.memory.data()),
                   direction == Direction::inverse, rotation.stream_norm == NormKind::layer},
                  stream_);
  }

  void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) override {
    check_gather(x, rows, out);
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
    const bool step = is_long_step(out, tokens);
    if (!step) a.quantize = quantize_as(target, tokens, "norm");
    launch_norm(a, stream_);
    if (step) quantize_step(target, tokens, "norm");
  }

  void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
              const RowsFor& target) override {
    const Rows& out = target.rows;
    if (tokens <= 0 || linear.outputs == 0) return;  // all outputs are other ranks'
    check_linear_inputs(linear, x);
    check_linear_outputs(linear, tokens, x, epilogue, target);
    const int terms = layout_.format_for(linear).terms;
    ensure(x.format.terms == terms, linear.name, ": expected inputs in ", terms, " terms, found ",
           x.format.terms);
    ensure(out.values != nullptr, linear.name, ": the GPU keeps the f32 values of its outputs");
    if (!multiply(x, tokens, linear, epilogue, target)) finish(target, tokens, linear.name);
  }

  void route(const Rows& logits, std::int64_t tokens, const Routing& routing, std::string_view site,
             ExpertRoutes& routes) override {
    const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(logits, tokens); });
    experts_.route(logits, tokens, routing, faults_.watch(site), routes);
  }
  void experts_gated(const Rows& x, const ExpertRoutes& routes, const ExpertLinears& experts,
                     Rows& grouped, Rows& out) override {
    const Linear& first = experts.gate_up(0);
    const RowsFor target(out, experts.down(0));
    expert_products_ = plain_rows(grouped);
    if (routes.in_place()) return linear(x, routes.tokens, first, Epilogue::swiglu, target);
    check_linear_inputs(first, x);
    DeviceExperts::check_readers(experts, std::ssize(routes.first) - 1);
    require_capacity(first.name, routes.rows(), out);
    {
      const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(first); });
      experts_.multiply(x, routes, experts.gate_up, Epilogue::swiglu, out);
    }
    finish(target, routes.rows(), first.name);
  }
  void experts_add(const Rows& products, const ExpertRoutes& routes, const ExpertLinear& down,
                   Rows& x) override {
    const Linear& first = down(0);
    if (routes.in_place()) {
      linear(products, routes.tokens, first, Epilogue::none, expert_products_);
    } else {
      const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(first); });
      check_linear_inputs(first, products);
      experts_.multiply(products, routes, down, Epilogue::none, expert_products_);
    }
    experts_.add(expert_products_, routes, x);
  }

  void delta_net(Rows& mixed, Rows& gates, const BatchView& batch, const DeltaShape& shape,
                 const RowsFor& out) override {
    constexpr std::string_view kSite = "output of the delta net";
    check_delta_net(mixed, gates, batch, shape, out);
    {
      const auto span =
          clock_.in(StepPart::attention, [&] { return moved_bytes(mixed, batch.tokens); });
      DeltaArguments a = delta_arguments(shape);
      a.mixed = float_rows(mixed);
      a.gates = float_rows(gates);
      a.out = float_rows(out);
      a.batch = on_device(batch, {});
      a.scratch = reinterpret_cast<float*>(
          memory_.scratch(layout_.delta_scratch_bytes(batch.tokens, shape)).data());
      a.fault = faults_.watch("input of the delta net");
      launch_delta_net(a, stream_);
    }
    finish(out, batch.tokens, kSite);
  }

  void quantize_kv_blocks(const BatchView& batch, const AttentionShape& shape,
                          std::span<const KvLayer> layers) override {
    if (shape.kv_heads == 0 || layers.empty() || !layers[0].residual.copies()) return;
    const auto span = clock_.in(StepPart::attention, [] { return std::size_t{0}; });
    check_pages(batch);
    quantize_layers(on_device(batch, layers[0]), shape, layers, Whole::before_the_batch);
  }

  void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape, RopeTable& rope,
                   const KvLayer& kv) override {
    const auto span =
        clock_.in(StepPart::attention, [&] { return moved_bytes(qkv, batch.tokens); });
    if (shape.kv_heads == 0) return;  // all heads are other ranks'
    check_qkv(qkv, batch, shape);
    check_pages(batch);
    if (shape.rotary) {
      check_rope(rope, shape, batch.end_position());
      fill_rope(rope, batch.end_position());
    }
    check_query_factors(rope, shape, batch.end_position());
    RopeAppendArguments a = rope_append_arguments(shape, rope, kv);
    a.qkv = float_rows(qkv);
    a.batch = on_device(batch, kv);
    a.fault = faults_.watch("input of attention");
    launch_rope_append(a, stream_);
    quantize_layers(a.batch, shape, {&kv, 1}, Whole::by_the_batch);
  }

  void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                 const KvLayer& kv, const RowsFor& out) override {
    if (shape.heads == 0) return;
    check_attention(qkv, batch, shape, out);
    constexpr std::string_view kSite = "output of attention";
    if (!attend(qkv, batch, shape, kv, out, kSite)) finish(out, batch.tokens, kSite);
  }

  // What the host does while a peer may wait takes no memory: the driver would wait for the peer.
  std::unique_ptr<Communicator> connect(Communicator& ranks, std::span<std::byte> window) override {
    if (landing_.size() < kDownloadBytes) landing_ = Pinned(kDownloadBytes);
    return link_ranks(ranks, device_, stream_, window);
  }

  // A rank's own columns are finished, but for codes and terms that need the whole row.
  void gather(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared) override {
    if (shared.ranks.size() == 1) return;
    {
      const auto span = clock_.in(StepPart::comm, [&] { return moved_bytes(out, tokens); });
      share_rows(out, tokens, shared);
    }
    if (!shared.received() || coded_by_columns(out.rows.format)) return;
    RowsConsumer consumer = out.consumer;
    consumer.inv_smooth = nullptr;
    finish({out.rows, consumer}, tokens, shared.site);
  }

  void sample(const Rows& logits, std::span<const SampleRequest> requests,
              std::span<std::int32_t> drawn) override {
    const auto span =
        clock_.in(StepPart::sample, [&] { return moved_bytes(logits, std::ssize(requests)); });
    check_sample(logits, requests);
    check_drawn(requests, drawn);
    sampler_.launch(float_rows(logits), logits.width, requests);
    synchronize();
    std::ranges::copy(sampler_.drawn(), drawn.begin());
    for (std::size_t row = 0; row < requests.size(); ++row) {
      if (!draws_on_host(requests[row])) continue;
      drawn[row] =
          host_sampler_.draw(row_on_host(logits, static_cast<std::int64_t>(row)), requests[row]);
    }
  }

  std::unique_ptr<PendingSample> begin_sample(const Rows& logits,
                                              std::span<const SampleRequest> requests) override {
    const auto span =
        clock_.in(StepPart::sample, [&] { return moved_bytes(logits, std::ssize(requests)); });
    check_sample(logits, requests);
    return pending_.begin(float_rows(logits), logits.width, requests);
  }

  // Replayed operations do not look at pages and the rotary table, so both are looked at here.
  // Events between operations do not belong into a recording: a step that is timed is not replayed.
  void step(const Step& step, const std::function<void()>& operations) override {
    if (clock_.running()) return operations();
    check_pages(step.batch);
    if (step.rope != nullptr) {
      fill_rope(*step.rope, std::min(step.batch.end_position(), step.rope->context));
    }
    forget_moved();
    graphs_.run(step, [&] {
      operations();
      forget_moved();
    });
  }
  void record_steps(bool on) override { graphs_.enable(on); }
  StepCounts step_counts() const override { return graphs_.counts(); }

  void download(const Rows& x, std::int64_t tokens, std::span<float> out) override {
    check_download(x, tokens, out);
    const auto row = static_cast<std::size_t>(x.value_stride) * sizeof(float);
    if (landing_.size() < row) landing_ = Pinned(std::max(row, kDownloadBytes));
    const auto most = static_cast<std::int64_t>(landing_.size() / row);
    for (std::int64_t first = 0; first < tokens; first += most) {
      const std::int64_t count = std::min(most, tokens - first);
      rt::copy_to_host(landing_.data(), x.values + first * x.value_stride,
                       static_cast<std::size_t>(count) * row, stream_);
      synchronize();
      for (std::int64_t t = 0; t < count; ++t) {
        std::copy_n(reinterpret_cast<const float*>(landing_.data()) + t * x.value_stride, x.width,
                    out.data() + (first + t) * x.width);
      }
    }
  }

  void synchronize() override {
    faults_.collect();
    rt::synchronize(stream_);
    faults_.check();
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

  // Recordings hold addresses.
  void forget_moved() {
    if (std::exchange(memory_changes_, memory_.changes()) != memory_.changes()) graphs_.forget();
  }

  const std::int32_t* on_device(std::span<const std::int32_t> list) {
    const std::int32_t* slot = graphs_.slot_of(list);
    return slot != nullptr ? slot : staging_.push(list);
  }
  AttentionBatch on_device(const BatchView& batch, const KvLayer& kv) {
    const AttentionBatch* of_step = graphs_.batch_of(batch);
    return of_step != nullptr ? *of_step : lists_.push(batch, copies_of(kv));
  }
  enum class Whole : std::uint8_t { before_the_batch, by_the_batch };
  // Zones and copies are the same in all layers; a launch has layers of one pair of types.
  void quantize_layers(const AttentionBatch& batch, const AttentionShape& shape,
                       std::span<const KvLayer> layers, Whole whole) {
    KvQuantizeArguments a = {batch, heads_of(shape)};
    a.copied = copied_of(layers[0]);
    a.whole_before = whole == Whole::before_the_batch;
    const auto launch = [&] {
      launch_kv_quantize(a, stream_);
      a.layer_count = 0;
    };
    for (const KvLayer& kv : layers) {
      const bool keys = kv_scheme(kv.key_type).blocked();
      const bool values = kv_scheme(kv.value_type).blocked();
      const bool other =
          (keys && a.keys.type != kv.key_type) || (values && a.values.type != kv.value_type);
      if (other || a.layer_count == static_cast<int>(kQuantizedLayers)) launch();
      if (keys) a.keys = pages_of(kv, KvPart::keys, shape);
      if (values) a.values = pages_of(kv, KvPart::values, shape);
      if (!keys && !values) continue;
      a.layers[static_cast<std::size_t>(a.layer_count++)] = {
          keys ? kv.keys : nullptr, values ? kv.values : nullptr, kv.key_copies, kv.value_copies};
    }
    launch();
  }
  // Norms and rotations keep a row of f32 in shared memory.
  void require_shared_row(const char* what, std::int64_t width) const {
    const std::size_t limit = rt::device_of(stream_).shared_limit_bytes - 1024;
    require(static_cast<std::size_t>(width) * sizeof(float) <= limit, what, ": rows of ", width,
            ", this GPU takes up to ", limit / sizeof(float), "; use ", Setting{"device"}, " cpu");
  }

  enum class Gather : std::uint8_t { store, add };
  void gather_table(const WeightView& table, std::span<const std::int32_t> ids, Rows& x,
                    Gather gather) {
    if (table.scheme.is_super()) {
      ensure(gather == Gather::store, "embedding: positions of type ", scheme_name(table.scheme));
      return launch_super_embed({super_weight(table), table.columns, on_device(ids),
                                 sampler_.tokens(), std::ssize(ids), float_rows(x)},
                                stream_);
    }
    EmbedArguments a;
    a.is_float = table.scheme.is_float();
    if (a.is_float) {
      a.floats = float_weight(table);
    } else {
      a.codes = code_weight(table);
    }
    a.width = table.columns;
    a.ids = on_device(ids);
    a.drawn = sampler_.tokens();
    a.tokens = std::ssize(ids);
    a.x = float_rows(x);
    a.add = gather == Gather::add;
    launch_embed(a, stream_);
  }

  // Where a kernel makes the codes of its outputs: those that their consumer wants.
  bool takes_codes(const RowsFor& target) const { return target.rows.format.act == ActKind::g128; }
  OutputCodes codes_of_outputs(const RowsFor& target, std::int64_t tokens, std::string_view site) {
    return {quantize_as(target, tokens, site), target.consumer.inv_smooth,
            reinterpret_cast<unsigned*>(tickets_.data())};
  }

  // Whether what its consumer reads is there too.
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
    a.codes.tickets = reinterpret_cast<unsigned*>(tickets_.data());
    const bool coded = takes_codes(target) && makes_codes(a) && !shape.output_gate;
    if (coded) a.codes = codes_of_outputs(target, batch.tokens, site);
    const std::size_t scratch = layout_.scratch_bytes(batch.tokens, shape, a.batch.end);
    a.scratch = reinterpret_cast<float*>(memory_.scratch(scratch).data());
    launch_attention(a, stream_);
    if (shape.output_gate) {
      const FloatRows gates = {a.qkv.values + gates_at(shape), a.qkv.stride};
      launch_gate_outputs({a.out, gates, batch.tokens, target.rows.width}, stream_);
    }
    return coded;
  }

  // Whether what the outputs' consumer reads is there too.
  bool multiply(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                const RowsFor& target) {
    const Rows& out = target.rows;
    const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(linear); });
    const QuantScheme& scheme = linear.segments[0].weight.scheme;
    if (!is_one_launch(linear)) return multiply_segments(x, tokens, linear, epilogue, out);
    if (scheme.is_super()) {
      auto a = matmul_arguments<SuperMatmul>(linear, tokens, epilogue, out);
      a.x = code_rows(x);
      launch_super_matmul(a, stream_);
      return false;
    }
    if (is_coded(linear.act)) {
      auto a = matmul_arguments<IntMatmul>(linear, tokens, epilogue, out);
      a.x = code_rows(x);
      const bool coded = takes_codes(target) && makes_codes(a);
      if (coded) a.codes = codes_of_outputs(target, tokens, linear.name);
      launch_int_matmul(a, stream_);
      return coded;
    }
    if (scheme.is_float()) {
      auto a = matmul_arguments<FloatMatmul>(linear, tokens, epilogue, out);
      a.values = float_rows(x);
      a.x = term_rows(x, order_of(tokens));
      launch_float_matmul(a, stream_);
    } else {
      auto a = matmul_arguments<WeightOnlyMatmul>(linear, tokens, epilogue, out);
      a.x = term_rows(x, order_of(tokens));
      launch_weight_only_matmul(a, stream_);
    }
    return false;
  }

  // Weights of several types that share an input, as those of a GGUF file may, and more than a
  // kernel takes: a launch for each few neighbours of one type.
  bool multiply_segments(const Rows& x, std::int64_t tokens, const Linear& linear,
                         Epilogue epilogue, const Rows& out) {
    require(epilogue != Epilogue::swiglu, linear.name, ": gate and up of two types run on the CPU ",
            "only; use ", Setting{"device"}, " cpu");
    std::int64_t column = 0;
    for (const Linear& part : launched_parts(linear)) {
      Rows columns = slice_columns(plain_rows(out), {column, column + part.outputs});
      multiply(x, tokens, part, epilogue, columns);
      column += part.outputs;
    }
    return false;
  }

  // Who writes terms and who reads them agree by the number of tokens.
  TermOrder order_of(std::int64_t tokens) const {
    return term_order(tokens, rt::device_of(stream_), wgmma_adds_as_mma_);
  }

  // One scale for all rows of a step: they are finished before it is known. A single row is a step
  // that its kernel carries out.
  static bool is_long_step(const Rows& out, std::int64_t tokens) {
    return has_moving_scale(out.format.act) && tokens > 1;
  }

  // What a kernel that finishes rows of `target` does with them.
  Quantize quantize_as(const RowsFor& target, std::int64_t tokens, std::string_view site) {
    const Rows& out = target.rows;
    Quantize q;
    q.terms = term_rows(out, order_of(tokens));
    if (!is_coded(out.format.act)) return q;
    q.out = code_rows(out);
    if (has_stored_scale(out.format.act)) {
      q.scale = target.consumer.act_scale;
      q.inverse = 1.0f / q.scale;
    }
    if (has_moving_scale(out.format.act)) q.online = scales_.of(*target.consumer.online);
    q.fault = faults_.watch(site);
    return q;
  }

  // Rows whose f32 values are there: smoothed, then codes or terms as their consumer wants them.
  void finish(const RowsFor& target, std::int64_t tokens, std::string_view site) {
    const Rows& out = target.rows;
    const float* factors = target.consumer.inv_smooth;
    if (!is_coded(out.format.act) && out.format.terms == 0 && factors == nullptr) return;
    const auto span = clock_.in(StepPart::quant, [&] { return 2 * moved_bytes(out, tokens); });
    QuantizeArguments a = {float_rows(out), tokens, out.width, factors, {}};
    const bool step = is_long_step(out, tokens);
    if (!step) a.quantize = quantize_as(target, tokens, site);
    if (!step || a.inv_smooth != nullptr) launch_quantize(a, stream_);
    if (step) quantize_step(target, tokens, site);
  }

  // One row of numbers; valid until the next call or download.
  std::span<const float> row_on_host(const Rows& x, std::int64_t row) {
    const auto bytes = static_cast<std::size_t>(x.width) * sizeof(float);
    if (landing_.size() < bytes) landing_ = Pinned(std::max(bytes, kDownloadBytes));
    rt::copy_to_host(landing_.data(), x.values + row * x.value_stride, bytes, stream_);
    synchronize();
    return {reinterpret_cast<const float*>(landing_.data()), static_cast<std::size_t>(x.width)};
  }

  // A moving scale, several rows.
  void quantize_step(const RowsFor& target, std::int64_t tokens, std::string_view site) {
    const Rows& out = target.rows;
    OnlineArguments a = {float_rows(out), tokens, out.width, quantize_as(target, tokens, site)};
    a.largest = reinterpret_cast<float*>(memory_.scratch(step_scratch_bytes(tokens)).data());
    a.clipped = reinterpret_cast<unsigned*>(a.largest + tokens);
    launch_online(a, stream_);
  }

  void fill_rope(RopeTable& rope, std::int64_t end) {
    const auto numbers = static_cast<std::int64_t>(2 * rope.inv_freq.size());
    while (rope.filled < end) {
      const std::int64_t count = std::min(kRopePositions, rope.context - rope.filled);
      std::vector<float> rows(static_cast<std::size_t>(count * numbers));
      fill_rope_rows(rope, rope.filled, count, rows.data());
      auto* table = reinterpret_cast<float*>(rope.memory.data());
      rt::copy_on_device(table + rope.filled * numbers, staging_.push(rows),
                         rows.size() * sizeof(float), stream_);
      rope.filled += count;
    }
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
  DeviceScratch tickets_;  // OutputCodes
  DeviceScales scales_;
  DeviceSampler sampler_;
  bool wgmma_adds_as_mma_;
  PendingSamples pending_;
  HostSampler host_sampler_;
  DeviceExperts experts_;
  Rows expert_products_;  // [R, W] f32, between experts_gated and experts_add
  Pinned landing_;        // rows on their way to the host
};

}  // namespace

std::unique_ptr<Backend> make_device_backend(int device, std::string name,
                                             const GpuOptions& options) {
  return std::make_unique<CudaBackend>(device, std::move(name), options);
}

}  // namespace leq::LEQ_GPU
