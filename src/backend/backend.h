// The one seam between the model and a device: memory and the block operations of a decoder, run in
// order and asynchronous until synchronize(). The letters of the shapes stand in docs/glossary.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/kv_types.h"
#include "backend/online_scale.h"
#include "backend/sample.h"
#include "backend/step_parts.h"
#include "tensor/weight_layout.h"

namespace leq {

class Backend;

// Device memory with one owner; counted by its backend (allocated_bytes).
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend& backend,
         std::size_t bytes);  // 64-byte aligned, zeroed; throws Error with both sizes
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Backend* backend_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

enum class NormKind : std::uint8_t { rms, layer };

struct Norm {
  NormKind kind = NormKind::rms;
  const float* gain = nullptr;  // [W]
  const float* beta = nullptr;  // [W], layer norm only
  float eps = 1e-5f;
  std::int64_t width = 0;  // W
};

// Up to three weights that share one input (q,k,v; gate,up), joined without a copy. The outputs of
// segment i follow those of segment i-1.
struct LinearSegment {
  WeightView weight;            // [O_i][I]
  const float* bias = nullptr;  // [O_i]
};
struct Linear {
  std::array<LinearSegment, 3> segments;
  int segment_count = 0;
  std::int64_t inputs = 0;   // I
  std::int64_t outputs = 0;  // O, the sum over the segments
  ActKind act = ActKind::none;
  float act_scale = 0;  // act tensor: the step between two codes
  OnlineMode online_mode = OnlineMode::safe;
  const float* inv_smooth = nullptr;  // [I]: inputs are multiplied by it; null: as they are
  std::string name;                   // "layers.3.qkv", for errors and plans

  std::span<const LinearSegment> parts() const {
    return {segments.data(), static_cast<std::size_t>(segment_count)};
  }
};

// What happens to y = x W^T + b on its way out.
enum class Epilogue : std::uint8_t {
  none,    // out = y
  add,     // out += y (the residual stream)
  swiglu,  // segments gate and up: out = silu(gate) * up, quantized as out's format says
  gelu,    // out = gelu_new(y), quantized as out's format says
};

// How a block of rows is kept for the linear that reads it.
struct RowsFormat {
  bool values = true;           // keep f32
  ActKind act = ActKind::none;  // keep int8 codes with scales
  bool offset_codes = false;    // codes stored as q + 128 (consumers with int8 weights)
  int sum_group = 0;            // columns of one stored code sum (consumers with unsigned weights)
  int pieces = 0;               // 16-bit floats that make a number (f32 inputs of tensor cores)

  bool operator==(const RowsFormat&) const = default;
};

// What one linear wants of the rows that it reads, beside their format: blocks are shared by
// layers, so this is set before an operation writes into one.
struct RowsConsumer {
  float act_scale = 0;                // act tensor
  OnlineScale* online = nullptr;      // act online; outlives the operation
  const float* inv_smooth = nullptr;  // [W]: multiplied into the finished f32 row, null: nothing is
};

// A block of activations [T, W] on the device. Opaque to callers: only backends look inside.
struct Rows {
  std::int64_t capacity = 0;  // largest T
  std::int64_t width = 0;     // W
  RowsFormat format;
  RowsConsumer consumer;
  std::int64_t value_stride = 0, code_stride = 0, scale_stride = 0, sum_stride = 0;
  float* values = nullptr;        // [T][value_stride]
  std::uint8_t* codes = nullptr;  // [T][code_stride], in bytes; or the pieces of format
  float* scales = nullptr;        // [T][scale_stride]: 1 or ceil128(W)/128 scales
  std::int32_t* sums = nullptr;   // [T][sum_stride]: sums of codes over sum_group columns
  Buffer memory;
};

// Rotary embedding: pairs (i, i + d/2) turned by position * inv_freq[i]. The table of cosines and
// sines is filled as positions come into use.
struct RopeTable {
  std::span<const float> inv_freq;  // [d/2], scaled; empty where the model has no rotary embedding
  float attention_factor = 1.0f;
  std::int64_t context = 0;  // largest position + 1
  std::int64_t filled = 0;
  Buffer memory;  // [context][2][d/2] f32: cosines, then sines
};

// A random-sign Hadamard rotation of the residual stream, H the matrix of n x n signs: in each
// block of n columns y = H (x * factor) with factor = +-1/sqrt(n). Its transpose is the way back.
struct RotationTable {
  std::int64_t width = 0;                // W
  std::int64_t block = 0;                // n, a power of two that divides W; 0 = none
  NormKind stream_norm = NormKind::rms;  // layer: the mean of a row is taken off on the way in
  Buffer memory;                         // [W] f32: the factors
};
enum class Turn : std::uint8_t { in, back };

struct AttentionShape {
  int heads = 0;     // H
  int kv_heads = 0;  // H_kv
  int head_dim = 0;  // d, even
  int window = 0;    // W: key j is visible to query i iff i - W < j <= i; 0 = all before
  const Norm* q_norm = nullptr;  // over each head, Qwen3
  const Norm* k_norm = nullptr;
  bool rotary = true;
};

// What a device with memory of its own has left for a plan.
struct DeviceRoom {
  std::uint64_t bytes = 0;  // that may be taken
  std::uint64_t total = 0;  // of the device
  std::uint64_t cap = 0;    // 0, or the most that the user lets this process take
};

// Weights that went to a device.
struct UploadReport {
  std::uint64_t bytes = 0;  // as they lie in the file
  double seconds = 0;
};

// What the operations of one step read of the host's memory, and whose step it is. Two steps of one
// owner with lists of the same lengths are the same operations on the same blocks: only the numbers
// in the lists and the batch's positions and pages differ.
struct Step {
  BatchView batch;
  std::array<std::span<const std::int32_t>, 3> lists;  // ids, positions, rows with logits
  RopeTable* rope = nullptr;                           // that the operations read
  std::int64_t context = 0;                            // positions of one sequence at most
  std::array<const void*, 2> owner = {};               // device memory of workspace and cache
};
struct StepCounts {
  std::int64_t recorded = 0, replayed = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "cpu avx512vnni, 2 threads"
  // The kernel that linear() would run, for plans ("avx512vnni int8 x int8, 12x32").
  virtual std::string describe(const Linear& linear) const = 0;

  // Bytes asked for through Buffer, now and at most so far: the memory plan's other side.
  virtual std::size_t allocated_bytes() const = 0;
  virtual std::size_t peak_bytes() const = 0;

  // nullopt: buffers are memory of the host, which no plan divides beforehand.
  virtual std::optional<DeviceRoom> room() const = 0;
  // Takes a plan's memory at once, before anything is loaded, so that no Buffer of it can fail
  // later: `weight_bytes` for uploads, which come first, and `other_bytes` for all other buffers.
  // Throws Error with the sizes where there is no room.
  virtual void plan_memory(std::size_t weight_bytes, std::size_t other_bytes) = 0;

  // A weight as this device wants it: a view of memory that joins `owner`. The CPU borrows the
  // mapped file instead, whose owner must outlive the view.
  virtual WeightView upload(const WeightView& weight, std::vector<Buffer>& owner) = 0;
  // What upload() takes of `owner`, exactly; 0 where it borrows.
  virtual std::size_t upload_bytes(const WeightView& weight) const = 0;
  // Waits for the uploads so far; what they were since the last call.
  virtual UploadReport finish_uploads() = 0;

  // Format that `consumer` reads, and a block of rows in a format. rows_bytes is what Rows::memory
  // will hold, exactly; it needs no device.
  virtual RowsFormat format_for(const Linear& consumer) const = 0;
  virtual Rows allocate_rows(std::int64_t capacity, std::int64_t width,
                             const RowsFormat& format) = 0;
  virtual std::size_t rows_bytes(std::int64_t capacity, std::int64_t width,
                                 const RowsFormat& format) const = 0;
  RopeTable allocate_rope(std::span<const float> inv_freq, float attention_factor,
                          std::int64_t context);
  virtual std::size_t rope_bytes(std::int64_t pairs, std::int64_t context) const = 0;
  // `factors` [W]; throws Error where the block is no power of two that divides W.
  virtual RotationTable allocate_rotation(std::span<const float> factors, std::int64_t block,
                                          NormKind stream_norm) = 0;
  virtual std::size_t rotation_bytes(std::int64_t width) const = 0;
  // Scratch that the operations below need for batches of at most `tokens` rows, asked for once.
  virtual void reserve(std::int64_t tokens, const AttentionShape& shape, std::int64_t context) = 0;
  virtual std::size_t reserve_bytes(std::int64_t tokens, const AttentionShape& shape,
                                    std::int64_t context) const = 0;

  // Bytes of one page of one layer (64 positions of all kv heads), in this device's layout.
  virtual std::size_t key_page_bytes(KvType type, int kv_heads, int head_dim) const = 0;
  virtual std::size_t value_page_bytes(KvType type, int kv_heads, int head_dim) const = 0;

  // A kv head's 64 positions in the portable order of saved sequences: numbers [64][d] of the
  // cache's type, then for int8 f16 scales [64] and f16 minima [64]. out and in hold exactly that.
  virtual void read_kv(const KvHead& head, std::span<std::byte> out) const = 0;
  virtual void write_kv(const KvHead& head, std::span<const std::byte> in) = 0;

  // `bytes` of this device's memory, in order with the operations below.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // The first rows of x = `values` [tokens][W] from the host: download's way back.
  virtual void assign(std::span<const float> values, Rows& x) = 0;

  // x[t] = table[ids[t]] as f32.
  virtual void embed(const WeightView& table, std::span<const std::int32_t> ids, Rows& x) = 0;
  // x[t] += table[ids[t]]: learned positions.
  virtual void add_embedded(const WeightView& table, std::span<const std::int32_t> ids,
                            Rows& x) = 0;
  // The first `tokens` rows of x into the rotated stream, or back out of it, in place.
  virtual void rotate(Rows& x, std::int64_t tokens, const RotationTable& rotation, Turn turn) = 0;
  virtual void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) = 0;
  // out = norm(x), as f32 and/or codes as out's format says. x and out may be the same block.
  virtual void norm(const Rows& x, std::int64_t tokens, const Norm& norm, Rows& out) = 0;
  virtual void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                      Rows& out) = 0;
  // qkv [T][(H + 2 H_kv) d]: norms of q and k, rotation, q * 1/sqrt(d) in place; k and v to the
  // cache.
  virtual void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                           RopeTable& rope, const KvLayer& kv) = 0;
  // out [T][H d] = softmax(q k^T) v over each row's visible positions, read back from the cache.
  virtual void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                         const KvLayer& kv, Rows& out) = 0;

  // drawn[i] = the token of row i of `logits` [requests][V] (sample.h), the same on every device;
  // below 0 where there is none: kAllBanned, or bad_logit_of the first that is no number. Waits, and
  // throws what synchronize throws. The logits are as before.
  virtual void sample(const Rows& logits, std::span<const SampleRequest> requests,
                      std::span<std::int32_t> drawn) = 0;

  // Calls `operations`, which are calls of the operations above that read no lists but those of
  // `step`. A device may record what they do for it, and not call them in later steps that are the
  // same but for numbers.
  virtual void step(const Step&, const std::function<void()>& operations) { operations(); }
  // Whether to record, where a device does; on by default.
  virtual void record_steps(bool) {}
  virtual StepCounts step_counts() const { return {}; }

  // The first `tokens` rows of x as f32 [tokens][W] on the host. Waits, and throws what
  // synchronize throws.
  virtual void download(const Rows& x, std::int64_t tokens, std::span<float> out) = 0;
  // Waits for all operations so far. A device that works behind the host's back throws here what
  // the CPU's operations throw themselves: the Error of a row that is not finite.
  virtual void synchronize() = 0;

  // Notes where the time of the operations from here on goes, until stop_times, which waits for
  // them. The parts' seconds add up to the time between the two.
  virtual void start_times() = 0;
  virtual StepTimes stop_times() = 0;

 private:
  friend class Buffer;
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* data, std::size_t bytes) noexcept = 0;
};

}  // namespace leq
