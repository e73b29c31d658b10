// The host's interface to every kernel of the backend: plain arguments with pointers into device
// memory, and one function per kernel that enqueues the launch on a stream. T tokens, N outputs, K
// inputs, W width, H heads, d head_dim; layouts are in cuda/layout/layout.h. The backend
// (cuda_backend.cpp) checks arguments; the launch functions do not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/kv_types.h"
#include "cuda/layout/attention_scratch.h"
#include "cuda/layout/kv_codes.h"
#include "cuda/layout/layout.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

using namespace gpu;  // the formulas of cuda/layout, shared by host and device

// --- activations ---

// The word in which a kernel reports a non-finite row: site << 32 | row, by an atomic minimum. The
// smallest report of a step remains, which names the first linear and row.
inline constexpr unsigned long long kNoFault = ~0ull;
struct Fault {
  unsigned long long* first = nullptr;
  std::uint32_t site = 0;
  std::uint32_t first_row = 0;  // added to the row
};

struct FloatRows {
  float* values = nullptr;  // [T][stride]
  std::int64_t stride = 0;
};

// int8 codes of rows, in the form that a linear reads.
struct CodeRows {
  std::int8_t* codes = nullptr;  // [T][code_stride]
  float* scales = nullptr;       // [T][scale_stride]
  std::int32_t* sums = nullptr;  // [T][sum_stride]: of sum_group columns; null if unused
  std::int64_t code_stride = 0, scale_stride = 0, sum_stride = 0;
  int group = 0;      // columns that share a scale: 128, 32, or 0 for the whole row
  int sum_group = 0;  // columns of a sum, a multiple of 16
};

// f32 rows for tensor cores: each number is split into 16-bit floats, 2 of f16 or 3 of bf16. A
// number is the sum of its terms * scales[0] * scales[1], with an error of at most 2^-23 of itself
// or 2^-39 of the row's largest. Layout: [T][Kp/32][count][32], padded with 0. In each 32 columns
// index 8 t + 4 i + j has column 16 i + 4 t + j, i = 0, 1, so that lane t of an mma loads one
// vector: columns 4 t ... 4 t + 3 of each 16 are its k = 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
struct TermRows {
  std::uint16_t* terms = nullptr;  // null if no kernel reads terms
  float* scales = nullptr;         // [T][2], powers of two
  std::int64_t stride = 0;         // Kp * count
  int count = 0;
};

struct OnlineRecord;  // online.h

// The encoding of finished rows for the kernel that reads them. Codes have a scale for each group,
// s = absmax / 127, or one known scale.
struct Quantize {
  CodeRows out;  // codes null: no codes
  TermRows terms;
  float scale = 0, inverse = 0;    // > 0: one scale for all rows; codes = clip(rne(x * inverse))
  OnlineRecord* online = nullptr;  // act online, steps of one row: the scale's state, updated here
  Fault fault;
};

// Output rows that the kernel encodes itself, as codes with a scale per 128 columns, which saves a
// launch. quantize.out.group is 128 and there is no known scale. `tickets` are kTickets zeros and
// are zeros again after the kernel.
inline constexpr int kTickets = 8192;
struct OutputCodes {
  Quantize quantize;                  // out.codes null: outputs are not encoded
  const float* inv_smooth = nullptr;  // [columns] or null: multiplied into the outputs first
  unsigned* tickets = nullptr;

  constexpr bool exist() const { return quantize.out.codes != nullptr; }
};

enum class NormForm : std::uint8_t { rms, layer };

// y = norm(x), times inv_smooth, as f32, as codes or terms, or as both. One block processes a row.
struct NormArguments {
  FloatRows x, out;  // out.values null: no f32 output. May equal x
  std::int64_t tokens = 0, width = 0;
  NormForm form = NormForm::rms;
  const float* gain = nullptr;        // [W]
  const float* beta = nullptr;        // [W], for NormForm::layer
  const float* inv_smooth = nullptr;  // [W] or null
  float eps = 0;
  Quantize quantize;
};
void launch_norm(const NormArguments& a, rt::Stream& stream);

// x *= inv_smooth unless it is null; then encodes x as codes or terms.
struct QuantizeArguments {
  FloatRows x;
  std::int64_t tokens = 0, width = 0;
  const float* inv_smooth = nullptr;
  Quantize quantize;
};
void launch_quantize(const QuantizeArguments& a, rt::Stream& stream);

// --- weights ---

enum class FloatType : std::uint8_t { f32, f16, bf16 };

// A weight [N][K] in device memory.
struct FloatWeight {
  const void* values = nullptr;  // [N][float_stride(K)]
  FloatType type = FloatType::f32;
};
// A kernel's `bits` for codes of 4 bits with a table.
inline constexpr int kTableBits = 4 + 16;
struct CodeWeight {
  const std::uint8_t* codes = nullptr;
  int bits = 8;
  int zero = 0;                                 // subtracted from each code if zeros is null
  const std::uint8_t* zeros = nullptr;          // zero points of uint schemes
  int group = 0;                                // columns that share a scale; 0: the whole row
  const float* row_scales = nullptr;            // used if group is 0
  const std::uint16_t* group_scales = nullptr;  // f16, to be multiplied by scale_mul
  float scale_mul = 1;
  // Codes of 4 bits with a table: the number of code i is byte i of the four words, signed.
  bool has_table = false;
  std::array<std::uint32_t, 4> table = {};
};

// Copies a weight from the file's panels (tensor/weight_layout.h), at device address `from`, to
// `to` in the order of layout.h. Every byte of `to` is written.
struct UploadCodes {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  int bits = 8;  // bits of a code: 8, 4, 3 or 2
  std::int64_t padded_rows = 0, padded_columns = 0;
  // The file has two planes for 3 bits. The first has the low two bits; the second, which is copied
  // with this flag, has the third bit of the same codes.
  bool thirds = false;
};
void launch_upload_codes(const UploadCodes& a, rt::Stream& stream);
// [Np/64][G][64] -> [Np][G], with elements of 1 or 2 bytes; `halves`: bytes are bits 7 to 14 of f16
// numbers, which are written.
struct UploadGroups {
  const void* from = nullptr;
  void* to = nullptr;
  int element_bytes = 2;
  bool halves = false;
  std::int64_t padded_rows = 0, groups = 0;
};
void launch_upload_groups(const UploadGroups& a, rt::Stream& stream);
// [N][K] -> [N][float_stride(K)], padded with 0, with elements of 2 or 4 bytes.
struct UploadFloats {
  const void* from = nullptr;
  void* to = nullptr;
  int element_bytes = 4;
  std::int64_t rows = 0, columns = 0;
};
void launch_upload_floats(const UploadFloats& a, rt::Stream& stream);

// x[t] = scale * table[ids[t]] in f32; if `add`, x[t] += table[ids[t]].
struct EmbedArguments {
  bool is_float = true;
  FloatWeight floats;
  CodeWeight codes;
  std::int64_t width = 0;             // K
  const std::int32_t* ids = nullptr;  // [T]
  // The tokens of the last draw, to which placeholder_id(row) refers; negative if a row has none.
  const std::int32_t* drawn = nullptr;
  std::int64_t tokens = 0;
  FloatRows x;
  bool add = false;
  float scale = 1;
};
void launch_embed(const EmbedArguments& a, rt::Stream& stream);

// --- matmul ---

// The epilogue applied to y = x W^T + bias.
enum class Finish : std::uint8_t {
  store,           // out = y
  add,             // out = out + y
  swiglu,          // two segments: out = silu(gate) * up, N / 2 columns
  gelu,            // out = gelu_new(y)
  geglu,           // two segments: out = gelu_new(gate) * up, N / 2 columns
  silu,            // out = silu(y)
  clamped_swiglu,  // two segments: out = clamped_swiglu(gate, up), N / 2 columns
};
inline constexpr Finish kLastFinish = Finish::clamped_swiglu;  // of these
// Whether rows of gate and of up form one output.
constexpr bool is_gated(Finish how) {
  return how == Finish::swiglu || how == Finish::geglu || how == Finish::clamped_swiglu;
}

inline constexpr int kMaxSegments = 3;

// One of up to three weights with the same input; segment i's outputs follow those of i - 1.
template <class Weight>
struct Segment {
  Weight weight;
  const float* bias = nullptr;  // [rows] or null
  std::int64_t rows = 0;
};
using CodeSegment = Segment<CodeWeight>;
using FloatSegment = Segment<FloatWeight>;

template <class Weight, class Inputs>
struct Matmul {
  Segment<Weight> segments[kMaxSegments];
  int segment_count = 0;
  std::int64_t tokens = 0, columns = 0;  // T, K
  Inputs x;
  Finish finish = Finish::store;
  FloatRows out;
};

// int8 activations x integer weights: exact int32 sums, then floats in the order of
// docs/numerics.md, which has a formula for each combination of groupings of weights and
// activations. All segments have the same bits and group; either all or none have zero points.
struct IntMatmul : Matmul<CodeWeight, CodeRows> {
  OutputCodes codes;  // used if makes_codes(*this)
};
void launch_int_matmul(const IntMatmul& a, rt::Stream& stream);
// Returns whether the kernel quantizes its outputs: for few tokens, if segments form one output.
bool makes_codes(const IntMatmul& a);

// The router's choice, which overwrites its logits. A row of [T][stride] has k expert numbers in
// ascending order, k weights, if groups are built k indices of the token's rows in them, and the
// weight of a shared expert.
struct ExpertChoice {
  float* rows = nullptr;
  std::int64_t stride = 0;
  int active = 0;  // k
};

// x [T][W] += weight * products [T k][W], one expert after another. The products are in groups or
// in token order. Those of a shared expert follow, [T][W], and are added last.
struct AddExpertsArguments {
  FloatRows x, products;
  ExpertChoice choice;
  bool in_groups = false, has_shared = false;
  std::int64_t tokens = 0, width = 0;
  bool fresh = false;  // x is 0 before
};
void launch_add_experts(const AddExpertsArguments& a, rt::Stream& stream);

// One token's matmul and what follows it, in one launch: the last block to finish computes the norm
// of all outputs, or the last one of each head prepares the head for attention. `joins` returns
// whether there is such a kernel for them; `tickets` are those of OutputCodes.
bool joins(const IntMatmul& a, const NormArguments& next);
void launch_joined(const IntMatmul& a, const NormArguments& next, unsigned* tickets,
                   rt::Stream& stream);
struct RopeAppendArguments;
bool joins(const IntMatmul& a, const RopeAppendArguments& next);
void launch_joined(const IntMatmul& a, const RopeAppendArguments& next, unsigned* tickets,
                   rt::Stream& stream);
// A shared expert's down of one token and the sum.
bool joins(const IntMatmul& a, const AddExpertsArguments& next);
void launch_joined(const IntMatmul& a, const AddExpertsArguments& next, unsigned*,
                   rt::Stream& stream);

// f32 activations x float weights. f32 weights use the chains of docs/numerics.md. 16-bit weights
// use tensor cores, close to these chains; the order does not depend on T (float_gemm.cu).
struct FloatMatmul : Matmul<FloatWeight, TermRows> {  // x: 2 terms for f16, 3 for bf16
  FloatRows values;                                   // for f32 weights
};
void launch_float_matmul(const FloatMatmul& a, rt::Stream& stream);

// f32 activations x integer weights (act none): a weight is float(code - zero) * scale. They are
// computed on tensor cores like 16-bit floats.
using WeightOnlyMatmul = Matmul<CodeWeight, TermRows>;  // 2 terms
void launch_weight_only_matmul(const WeightOnlyMatmul& a, rt::Stream& stream);

// Short names of the kernels that would run, for plans: "mma 128x128", "dp4a rows".
const char* describe_int_matmul(const IntMatmul& a);
const char* describe_float_matmul(bool f32_weights);

// --- rows of the residual stream ---

// out[i] = x[rows[i]]
struct GatherArguments {
  FloatRows x, out;
  const std::int32_t* rows = nullptr;  // [count]
  std::int64_t count = 0, width = 0;
};
void launch_gather(const GatherArguments& a, rt::Stream& stream);

// x[t] = scale * (x[t] + y[t]), or x[t] *= y[t]
struct AddRowsArguments {
  FloatRows x, y;
  std::int64_t tokens = 0, width = 0;
  float scale = 1;
  bool multiply = false;
};
void launch_add_rows(const AddRowsArguments& a, rt::Stream& stream);

// x = cap * tanh(scale * x / cap) for the numbers of each row, as base/float_math.h's capped
struct CapRowsArguments {
  FloatRows x;
  std::int64_t rows = 0, width = 0;
  float scale = 1, cap = 1;
};
void launch_cap_rows(const CapRowsArguments& a, rt::Stream& stream);

// --- attention ---

// The largest number of layers that one launch can quantize; every driver accepts such arguments.
inline constexpr std::size_t kQuantizedLayers = 112;

// Keys or values of one layer; page p begins at base + p * page_bytes.
struct KvPages {
  std::byte* base = nullptr;
  std::int64_t page_bytes = 0;
  KvType type = kUsualKv;
  KvCodes codes = {};
};

// The f16 copies that are read instead of codes of blocks that are not closed (KvResidual). base is
// null if there are none. The batch has the index of each page's copy.
struct KvCopied {
  KvPages keys, values;
  KvResidual residual = {};
};

// Neighbouring rows of a batch that are consecutive positions of one sequence.
struct AttentionRun {
  std::int32_t first_row = 0, rows = 0;
  std::int32_t first_position = 0;
  std::int32_t pages_at = 0;   // position p is in page pages[pages_at + p / 64]
  std::int32_t copies_at = 0;  // pages[copies_at + p / 64]: the page's f16 copy, or -1
  // Addresses of fixed-size states, low half first (SequenceRun::state_from, state_to), and the
  // previous and the next run of the batch that write the same state, or -1.
  std::uint32_t state_from[2] = {}, state_to[2] = {};
  std::int32_t previous_run = -1, next_run = -1;
};

// The batch, as arrays on the device.
struct AttentionBatch {
  std::int64_t tokens = 0;
  const AttentionRun* runs = nullptr;  // [run_count], ascending; together rows 0..T-1
  int run_count = 0;
  const std::int32_t* row_runs = nullptr;  // [T]: the run of each row
  const std::int32_t* pages = nullptr;
  std::int64_t longest_run = 0;  // rows of the longest run
  int single_runs = 0;           // number of runs of one row
  std::int64_t end = 0;          // at least the largest position + 1; outputs do not depend on it
  // Whether these arrays, and positions of earlier steps in pages, were complete before the kernel
  // that precedes the step's matmul before attention, so that they can be read before the wait.
  bool settled = false;
};

struct AttentionHeads {
  int heads = 0, kv_heads = 0, head_dim = 0;  // H, H_kv, d
  int window = 0;                             // key j visible to i iff i - window < j <= i; 0: all
  // Query heads per kv head in the model, and the index of this rank's first head in its group,
  // because ranks may share a kv head.
  int group = 1, first_head = 0;
  const float* sink_logits = nullptr;  // [H] or null: scores that only add to the sums of weights
  bool both_ways = false;              // later rows of the run are visible too, within the window
};

// For qkv [T][(H + 2 H_kv) d]: norm of each head (unless gain is null), rotation of q and k by the
// row's position, and q times its factor, in place. k and v are written to their pages.
struct RopeAppendArguments {
  FloatRows qkv;
  AttentionBatch batch;
  AttentionHeads heads;
  const float* q_gain = nullptr;  // [d]
  const float* k_gain = nullptr;
  const float* v_gain = nullptr;
  float q_eps = 0, k_eps = 0, v_eps = 0;
  // [positions][2][r/2]: cosines, then sines, for a head's first r numbers. Null: no rotation.
  const float* table = nullptr;
  int rotary_dims = 0;                // r
  const float* key_offset = nullptr;  // [H_kv d], subtracted from stored keys; null: none
  float query_scale = 0;              // factor of q; 0: 1/sqrt(d)
  // At position p, q is multiplied by query_factors[p / query_period], unless they are null.
  const float* query_factors = nullptr;
  int query_period = 1;
  KvPages keys, values;
  KvCopied copied;  // sides whose codes are encoded per block are written to copies
  Fault fault;
  bool queries_only = false;  // rows have no k and v
};
void launch_rope_append(const RopeAppendArguments& a, rt::Stream& stream);

// The blocks of one layer, and the f16 copies from which they are encoded. If a side has no blocks,
// its pointers are null.
struct KvQuantizeLayer {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::byte* key_copies = nullptr;
  std::byte* value_copies = nullptr;
};

// Encodes closed blocks of positions, on the sides that have blocks. The device computes the blocks
// from the runs, so that a recorded step quantizes the right ones. One launch is enough for all
// layers, because blocks that were complete before the batch do not depend on its results.
struct KvQuantizeArguments {
  AttentionBatch batch;
  AttentionHeads heads;
  KvPages keys, values;  // for all layers; only the base differs
  KvCopied copied;
  bool whole_before = false;  // true: blocks whole before the batch; false: blocks that it closes
  int layer_count = 0;
  std::array<KvQuantizeLayer, kQuantizedLayers> layers = {};
};
void launch_kv_quantize(const KvQuantizeArguments& a, rt::Stream& stream);

// out [T][H d] = softmax(q k^T) v over the visible positions, which are read from the pages. q is
// scaled and rotated already. With int8 keys q is quantized per (token, head):
//   score = s_q * fma(s, float(sum u q), m * float(sum q))
// A row's outputs depend on its position and its sequence alone, never on the batch. If keys and
// values have one type other than f32 and head_dim is a multiple of 16 up to 256 (packed: 128),
// tensor cores compute near the order of docs/numerics.md, unless `exact`; otherwise exactly so.
struct AttentionArguments {
  FloatRows qkv, out;
  AttentionBatch batch;
  AttentionHeads heads;
  KvPages keys, values;
  KvCopied copied;
  float* scratch = nullptr;  // attention_scratch_bytes (cuda/layout/attention_scratch.h)
  std::int64_t most_records = kMaxRecords;  // the number that scratch was sized for
  OutputCodes codes;                        // used if makes_codes(*this); tickets are always used
  bool exact = false;
};
void launch_attention(const AttentionArguments& a, rt::Stream& stream);
// out [T][width] *= sigmoid(gates), computed as x / (1 + exp(-gate)).
struct GateOutputsArguments {
  FloatRows out, gates;
  std::int64_t tokens = 0, width = 0;
  OutputCodes codes;
};
void launch_gate_outputs(const GateOutputsArguments& a, rt::Stream& stream);
// Returns whether the kernel itself quantizes the outputs: on tensor cores, if the heads of a kv
// head have together a multiple of 128 columns.
bool makes_codes(const AttentionArguments& a);

}  // namespace leq::LEQ_GPU
