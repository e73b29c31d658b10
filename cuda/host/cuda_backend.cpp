#include "cuda/host/cuda_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/checks.h"
#include "backend/rope_rows.h"
#include "base/error.h"
#include "cuda/host/batch_lists.h"
#include "cuda/host/device_sampler.h"
#include "cuda/host/device_scales.h"
#include "cuda/host/device_weights.h"
#include "cuda/host/faults.h"
#include "cuda/host/kv_portable.h"
#include "cuda/host/memory.h"
#include "cuda/host/part_events.h"
#include "cuda/host/row_blocks.h"
#include "cuda/host/staging.h"
#include "cuda/host/step_graphs.h"
#include "cuda/host/uploader.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/layout.h"

namespace leq::LEQ_GPU {
namespace {

// Positions of the rotary table that are filled at a time.
constexpr std::int64_t kRopePositions = 256;
// Rows come back through pinned memory of this size, or of one row.
constexpr std::size_t kDownloadBytes = std::size_t{8} << 20;

AttentionHeads heads_of(const AttentionShape& shape) {
  return {shape.heads, shape.kv_heads, shape.head_dim, shape.window};
}

KvPages pages_of(std::byte* base, std::size_t page_bytes, KvType type) {
  return {base, static_cast<std::int64_t>(page_bytes), static_cast<KvNumbers>(type)};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, std::string name, std::size_t memory_cap)
      : device_(device),
        name_(std::move(name)),
        stream_owner_(rt::make_stream(device)),
        stream_(*stream_owner_),
        memory_(device, memory_cap),
        staging_(device, stream_),
        lists_(staging_),
        faults_(device, stream_),
        graphs_(device, stream_, staging_),
        clock_(device, stream_),
        scales_(device, stream_),
        sampler_(device, stream_, staging_) {}

  std::string name() const override { return name_ + " (" + rt::device_of(stream_).name + ")"; }
  std::string describe(const Linear& linear) const override {
    const QuantScheme& scheme = linear.segments[0].weight.scheme;
    constexpr std::array<std::string_view, 5> kInputs = {
        "f32", "int8 rows", "int8 groups of 128", "int8 of one scale", "int8 of a moving scale"};
    const char* kernel = linear.act == ActKind::none
                             ? describe_float_matmul(scheme.kind == CodeKind::f32)
                             : describe_int_matmul(scheme.bits, 1);
    return name_ + " " + scheme_name(scheme) + " x " +
           std::string(kInputs[static_cast<std::size_t>(linear.act)]) +
           (linear.inv_smooth == nullptr ? ", " : " smoothed, ") + kernel;
  }

  std::size_t allocated_bytes() const override { return memory_.allocated(); }
  std::size_t peak_bytes() const override { return memory_.peak(); }

  std::optional<DeviceRoom> room() const override { return memory_.room(); }
  // What has landed lies at the end until all has: cache and activations come later.
  void plan_memory(std::size_t weight_bytes, std::size_t other_bytes) override {
    finish_uploads();
    memory_.plan(weight_bytes + other_bytes);
    const std::size_t slot =
        std::min(Uploader::kSlotBytes,
                 other_bytes / Uploader::kSlots / Arena::kAlignment * Arena::kAlignment);
    upload_slots_ = memory_.allocate_last(Uploader::kSlots * slot);
    uploader_.emplace(device_, stream_, upload_slots_, slot);
  }
  WeightView upload(const WeightView& weight, std::vector<Buffer>& owner) override {
    const std::size_t bytes = weight_bytes(weight).bytes;
    owner.emplace_back(*this, bytes);
    if (uploader_) return upload_weight(weight, owner.back().data(), *uploader_, stream_);
    Uploader alone(device_, stream_, nullptr, std::min(Uploader::kSlotBytes, bytes));
    const WeightView there = upload_weight(weight, owner.back().data(), alone, stream_);
    alone.finish();
    return there;
  }
  std::size_t upload_bytes(const WeightView& weight) const override {
    return weight_bytes(weight).bytes;
  }
  UploadReport finish_uploads() override {
    if (!uploader_) return {};
    const UploadReport report = uploader_->finish();
    uploader_.reset();
    memory_.release(std::exchange(upload_slots_, nullptr));
    return report;
  }

  RowsFormat format_for(const Linear& consumer) const override { return input_format(consumer); }
  Rows allocate_rows(std::int64_t capacity, std::int64_t width, const RowsFormat& format) override {
    const RowsLayout layout = rows_layout(capacity, width, format);
    return make_rows(layout, capacity, width, format, Buffer(*this, layout.bytes));
  }
  std::size_t rows_bytes(std::int64_t capacity, std::int64_t width,
                         const RowsFormat& format) const override {
    return rows_layout(capacity, width, format).bytes;
  }

  std::size_t rope_bytes(std::int64_t pairs, std::int64_t context) const override {
    return Arena::aligned(static_cast<std::size_t>(pairs * 2 * context) * sizeof(float));
  }
  RotationTable allocate_rotation(std::span<const float> factors, std::int64_t block,
                                  NormKind stream_norm) override {
    const std::int64_t width = std::ssize(factors);
    require_rotation(width, block);
    require_shared_row("rotation", width);
    RotationTable table = {width, block, stream_norm, Buffer(*this, rotation_bytes(width))};
    rt::copy_on_device(table.memory.data(), staging_.push(factors), factors.size_bytes(), stream_);
    return table;
  }
  std::size_t rotation_bytes(std::int64_t width) const override {
    return Arena::aligned(static_cast<std::size_t>(width) * sizeof(float));
  }

  void reserve(std::int64_t tokens, const AttentionShape& shape, std::int64_t context) override {
    const std::size_t bytes = reserve_bytes(tokens, shape, context);
    if (bytes <= scratch_.size()) return;
    scratch_ = Buffer();
    scratch_ = Buffer(*this, bytes);
  }
  std::size_t reserve_bytes(std::int64_t tokens, const AttentionShape& shape,
                            std::int64_t context) const override {
    return Arena::aligned(
        std::max(attention_scratch_bytes(tokens, heads_of(shape), context), step_bytes(tokens)));
  }

  std::size_t key_page_bytes(KvType type, int kv_heads, int head_dim) const override {
    return kv_page_bytes(type, kv_heads, head_dim);
  }
  std::size_t value_page_bytes(KvType type, int kv_heads, int head_dim) const override {
    return kv_page_bytes(type, kv_heads, head_dim);
  }
  void read_kv(const KvHead& head, std::span<std::byte> out) const override {
    read_kv_head(head, out, stream_);
  }
  void write_kv(const KvHead& head, std::span<const std::byte> in) override {
    write_kv_head(head, in, stream_);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    rt::copy_on_device(to, from, bytes, stream_);
  }

  void assign(std::span<const float> values, Rows& x) override {
    check_assign(values, x);
    const auto width = static_cast<std::size_t>(x.width);
    for (std::size_t at = 0; at < values.size(); at += width) {
      rt::copy_on_device(x.values + static_cast<std::int64_t>(at / width) * x.value_stride,
                         staging_.push(values.subspan(at, width)), width * sizeof(float), stream_);
    }
  }

  void embed(const WeightView& table, std::span<const std::int32_t> ids, Rows& x) override {
    gather_embedding(table, ids, x, false);
  }
  void add_embedded(const WeightView& table, std::span<const std::int32_t> ids, Rows& x) override {
    gather_embedding(table, ids, x, true);
  }

  void rotate(Rows& x, std::int64_t tokens, const RotationTable& rotation, Turn turn) override {
    const auto span = clock_.in(StepPart::quant, [&] { return 2 * moved_bytes(x, tokens); });
    check_rotation(x, tokens, rotation);
    launch_rotate({float_rows(x), tokens, x.width, rotation.block,
                   reinterpret_cast<const float*>(rotation.memory.data()), turn == Turn::back,
                   rotation.stream_norm == NormKind::layer},
                  stream_);
  }

  void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) override {
    check_gather(x, rows, out);
    launch_gather({float_rows(x), float_rows(out), on_device(rows), std::ssize(rows), x.width},
                  stream_);
  }

  void norm(const Rows& x, std::int64_t tokens, const Norm& norm, Rows& out) override {
    const auto span = clock_.in(StepPart::quant,
                                [&] { return moved_bytes(x, tokens) + moved_bytes(out, tokens); });
    check_norm(x, tokens, norm, out);
    require_shared_row("norm", norm.width);
    NormArguments a;
    a.x = float_rows(x);
    a.out = float_rows(out);
    a.tokens = tokens;
    a.width = norm.width;
    a.form = norm.kind == NormKind::rms ? NormForm::rms : NormForm::layer;
    a.gain = norm.gain;
    a.beta = norm.beta;
    a.inv_smooth = out.consumer.inv_smooth;
    a.eps = norm.eps;
    const bool step = is_long_step(out, tokens);
    if (!step) a.quantize = quantize_as(out, "norm");
    launch_norm(a, stream_);
    if (step) quantize_step(out, tokens, "norm");
  }

  void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
              Rows& out) override {
    if (tokens <= 0) return;
    check_linear_inputs(linear, x);
    check_linear_outputs(linear, tokens, x, epilogue, out);
    const int pieces = input_format(linear).pieces;
    ensure(x.format.pieces == pieces, linear.name, ": expected inputs in ", pieces,
           " pieces, found ", x.format.pieces);
    ensure(out.values != nullptr, linear.name, ": the GPU keeps the f32 values of its outputs");
    multiply(x, tokens, linear, epilogue, out);
    finish(out, tokens, linear.name);
  }

  void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape, RopeTable& rope,
                   const KvLayer& kv) override {
    const auto span =
        clock_.in(StepPart::attention, [&] { return moved_bytes(qkv, batch.tokens); });
    check_qkv(qkv, batch, shape);
    check_pages(batch);
    RopeAppendArguments a;
    a.qkv = float_rows(qkv);
    a.batch = on_device(batch);
    a.heads = heads_of(shape);
    if (shape.q_norm != nullptr) {
      a.q_gain = shape.q_norm->gain;
      a.q_eps = shape.q_norm->eps;
    }
    if (shape.k_norm != nullptr) {
      a.k_gain = shape.k_norm->gain;
      a.k_eps = shape.k_norm->eps;
    }
    if (shape.rotary) {
      check_rope(rope, shape, batch.end_position());
      fill_rope(rope, batch.end_position());
      a.table = reinterpret_cast<const float*>(rope.memory.data());
    }
    a.keys = pages_of(kv.keys, kv.key_page_bytes, kv.key_type);
    a.values = pages_of(kv.values, kv.value_page_bytes, kv.value_type);
    a.fault = faults_.watch("input of attention");
    launch_rope_append(a, stream_);
  }

  void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                 const KvLayer& kv, Rows& out) override {
    check_attention(qkv, batch, shape, out);
    attend(qkv, batch, shape, kv, out);
    finish(out, batch.tokens, "output of attention");
  }

  void sample(const Rows& logits, std::span<const SampleRequest> requests,
              std::span<std::int32_t> drawn) override {
    const auto span =
        clock_.in(StepPart::sample, [&] { return moved_bytes(logits, std::ssize(requests)); });
    check_sample(logits, requests, drawn);
    sampler_.launch(float_rows(logits), logits.width, requests);
    synchronize();
    std::ranges::copy(sampler_.drawn(), drawn.begin());
  }

  // Replayed operations do not look at pages and the rotary table, so both are looked at here.
  // Events between operations do not belong into a recording: a step that is timed is not replayed.
  void step(const Step& step, const std::function<void()>& operations) override {
    if (clock_.running()) return operations();
    check_pages(step.batch);
    if (step.rope != nullptr) {
      fill_rope(*step.rope, std::min(step.batch.end_position(), step.rope->context));
    }
    graphs_.run(step, operations);
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
  std::byte* allocate(std::size_t bytes) override {
    std::byte* data = memory_.allocate(bytes, stream_);
    graphs_.forget();
    return data;
  }
  // Scratch alone keeps no plan's memory.
  void release(std::byte* data, std::size_t) noexcept override {
    graphs_.forget();
    memory_.release(data);
    if (scratch_.size() > 0 && memory_.allocated() == Arena::aligned(scratch_.size())) {
      scratch_ = Buffer();
    }
  }

  const std::int32_t* on_device(std::span<const std::int32_t> list) {
    const std::int32_t* slot = graphs_.slot_of(list);
    return slot != nullptr ? slot : staging_.push(list);
  }
  AttentionBatch on_device(const BatchView& batch) {
    const AttentionBatch* of_step = graphs_.batch_of(batch);
    return of_step != nullptr ? *of_step : lists_.push(batch);
  }
  // The largest position of the batch + 1.
  // Norms and rotations keep a row of f32 in shared memory.
  void require_shared_row(const char* what, std::int64_t width) const {
    const std::size_t room = rt::device_of(stream_).shared_limit_bytes - 1024;
    require(static_cast<std::size_t>(width) * sizeof(float) <= room, what, ": rows of ", width,
            ", this GPU takes up to ", room / sizeof(float), "; use ", Setting{"device"}, " cpu");
  }

  void gather_embedding(const WeightView& table, std::span<const std::int32_t> ids, Rows& x,
                        bool add) {
    const auto span = clock_.in(StepPart::load, [&] { return moved_bytes(table, ids.size()); });
    check_embedding(table, ids, x);
    EmbedArguments a;
    a.is_float = table.scheme.is_float();
    if (a.is_float) {
      a.floats = float_weight(table);
    } else {
      a.codes = code_weight(table);
    }
    a.width = table.columns;
    a.ids = on_device(ids);
    a.tokens = std::ssize(ids);
    a.x = float_rows(x);
    a.add = add;
    launch_embed(a, stream_);
  }

  void attend(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
              const KvLayer& kv, Rows& out) {
    const auto span = clock_.in(StepPart::attention, [&] { return moved_bytes(batch, shape, kv); });
    AttentionArguments a;
    a.qkv = float_rows(qkv);
    a.out = float_rows(out);
    a.batch = on_device(batch);
    a.heads = heads_of(shape);
    a.keys = pages_of(kv.keys, kv.key_page_bytes, kv.key_type);
    a.values = pages_of(kv.values, kv.value_page_bytes, kv.value_type);
    reserve(batch.tokens, shape, a.batch.end);
    a.scratch = reinterpret_cast<float*>(scratch_.data());
    launch_attention(a, stream_);
  }

  void multiply(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                Rows& out) {
    const auto span = clock_.in(StepPart::gemm, [&] { return moved_bytes(linear); });
    const QuantScheme& scheme = linear.segments[0].weight.scheme;
    if (linear.act != ActKind::none) {
      auto a = matmul<IntMatmul>(linear, tokens, epilogue, out);
      a.x = code_rows(x);
      launch_int_matmul(a, stream_);
    } else if (scheme.is_float()) {
      auto a = matmul<FloatMatmul>(linear, tokens, epilogue, out);
      a.values = float_rows(x);
      a.x = piece_rows(x);
      launch_float_matmul(a, stream_);
    } else {
      auto a = matmul<WeightOnlyMatmul>(linear, tokens, epilogue, out);
      a.x = piece_rows(x);
      launch_weight_only_matmul(a, stream_);
    }
  }

  template <class Arguments>
  static Arguments matmul(const Linear& linear, std::int64_t tokens, Epilogue epilogue,
                          const Rows& out) {
    constexpr std::array<Finish, 4> kFinish = {Finish::store, Finish::add, Finish::swiglu,
                                               Finish::gelu};
    Arguments a;
    for (const LinearSegment& segment : linear.parts()) {
      auto& made = a.segments[a.segment_count++];
      if constexpr (std::is_same_v<Arguments, FloatMatmul>) {
        made.weight = float_weight(segment.weight);
      } else {
        made.weight = code_weight(segment.weight);
      }
      made.bias = segment.bias;
      made.rows = segment.weight.rows;
    }
    a.tokens = tokens;
    a.columns = linear.inputs;
    a.finish = kFinish[static_cast<std::size_t>(epilogue)];
    a.out = float_rows(out);
    return a;
  }

  // One scale for all rows of a step: they are finished before it is known. A single row is a step
  // that its kernel carries out.
  static bool is_long_step(const Rows& out, std::int64_t tokens) {
    return out.format.act == ActKind::online && tokens > 1;
  }

  // What a kernel that finishes rows of `out` does with them.
  Quantize quantize_as(const Rows& out, std::string_view site) {
    Quantize q;
    q.pieces = piece_rows(out);
    if (out.format.act == ActKind::none) return q;
    q.out = code_rows(out);
    if (out.format.act == ActKind::tensor) {
      q.scale = out.consumer.act_scale;
      q.inverse = 1.0f / q.scale;
    }
    if (out.format.act == ActKind::online) q.online = scales_.of(*out.consumer.online);
    q.fault = faults_.watch(site);
    return q;
  }

  // Rows whose f32 values are there: smoothed, then codes or pieces as their consumer wants them.
  void finish(Rows& out, std::int64_t tokens, std::string_view site) {
    if (out.format.act == ActKind::none && out.format.pieces == 0 &&
        out.consumer.inv_smooth == nullptr) {
      return;
    }
    const auto span = clock_.in(StepPart::quant, [&] { return 2 * moved_bytes(out, tokens); });
    QuantizeArguments a = {float_rows(out), tokens, out.width, out.consumer.inv_smooth, {}};
    const bool step = is_long_step(out, tokens);
    if (!step) a.quantize = quantize_as(out, site);
    if (!step || a.inv_smooth != nullptr) launch_quantize(a, stream_);
    if (step) quantize_step(out, tokens, site);
  }

  // Act online, several rows.
  void quantize_step(const Rows& out, std::int64_t tokens, std::string_view site) {
    if (scratch_.size() < step_bytes(tokens)) scratch_ = Buffer(*this, step_bytes(tokens));
    OnlineArguments a = {float_rows(out), tokens, out.width, quantize_as(out, site)};
    a.largest = reinterpret_cast<float*>(scratch_.data());
    a.clipped = reinterpret_cast<unsigned*>(a.largest + tokens);
    launch_online(a, stream_);
  }
  static std::size_t step_bytes(std::int64_t tokens) {
    return static_cast<std::size_t>(tokens) * (sizeof(float) + sizeof(unsigned));
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

  int device_;
  std::string name_;
  rt::StreamOwner stream_owner_;
  rt::Stream& stream_;
  Memory memory_;                      // outlives the buffers below
  std::optional<Uploader> uploader_;   // from plan_memory to finish_uploads
  std::byte* upload_slots_ = nullptr;  // of it, on the device
  Staging staging_;
  BatchLists lists_;
  Faults faults_;
  StepGraphs graphs_;  // outlives the buffer below
  PartEvents clock_;
  DeviceScales scales_;
  DeviceSampler sampler_;
  Pinned landing_;  // rows on their way to the host
  Buffer scratch_;
};

}  // namespace

std::unique_ptr<Backend> make_device_backend(int device, std::string name, std::size_t memory_cap) {
  return std::make_unique<CudaBackend>(device, std::move(name), memory_cap);
}

}  // namespace leq::LEQ_GPU
