// Every kernel of the backend from the host's side: plain arguments, pointers into device memory,
// and one function per kernel that enqueues the launch on a stream. T tokens, N outputs, K inputs,
// W width, H heads, d head_dim; layouts in cuda/layout/layout.h. Arguments are checked by the
// backend (cuda_backend.cpp), not here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/kv_scheme.h"
#include "cuda/layout/attention_scratch.h"
#include "cuda/layout/kv_codes.h"
#include "cuda/layout/layout.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

using namespace gpu;  // the formulas of cuda/layout, one for both halves

// --- activations ---

// Address to which a kernel reports a row that is not finite: the smallest report of a step wins,
// so that the first linear and row are named. Written as site << 32 | row by atomic minimum.
inline constexpr unsigned long long kNoFault = ~0ull;
struct Fault {
  unsigned long long* first = nullptr;
  std::uint32_t site = 0;
};

struct FloatRows {
  float* values = nullptr;  // [T][stride]
  std::int64_t stride = 0;
};

// int8 codes of rows, as a linear reads them.
struct CodeRows {
  std::int8_t* codes = nullptr;  // [T][code_stride]
  float* scales = nullptr;       // [T][scale_stride]
  std::int32_t* sums = nullptr;  // [T][sum_stride]: of sum_group columns; null where no one reads
  std::int64_t code_stride = 0, scale_stride = 0, sum_stride = 0;
  int group = 0;      // columns of one scale: 128, 32, or 0 for the whole row
  int sum_group = 0;  // columns of one sum, a multiple of 32
};

// The order of the 32 numbers of a term of 32 columns. Columns 4 t ... 4 t + 3 of 16 are in lane t
// of an mma, as its k = 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
// lanes: index 8 t + 4 i + j has column 16 i + 4 t + j, i = 0, 1: one vector load of a lane
// steps: index 16 i + k has number k of columns 16 i ... + 15: read by wgmma through a descriptor
enum class TermOrder : std::uint8_t { lanes, steps };

// f32 rows for tensor cores, each number split into 16-bit floats: 2 of f16 or 3 of bf16. A number
// is the sum of its terms * scales[0] * scales[1], with an error of at most 2^-23 of itself or
// 2^-39 of the row's largest. Blocks of 32 columns: [T][Kp/32][count][32]. Pads are 0.
struct TermRows {
  std::uint16_t* terms = nullptr;  // null: no one reads them
  float* scales = nullptr;         // [T][2], powers of two
  std::int64_t stride = 0;         // Kp * count
  int count = 0;
  TermOrder order = TermOrder::lanes;  // term_order: it decides which kernels read them
};

struct OnlineRecord;  // online.h

// How finished rows are encoded for their consumer. Codes: s = absmax / 127 of each group, or one
// known scale.
struct Quantize {
  CodeRows out;  // codes null: none
  TermRows terms;
  float scale = 0, inverse = 0;    // scale > 0: of all rows, codes = clip(rne(x * inverse))
  OnlineRecord* online = nullptr;  // act online of a step of one row: the scale moves with it
  Fault fault;
};

// Outputs encoded, where they are finished, as codes with a scale per 128 columns, which saves a
// launch: quantize.out.group is 128, without a known scale. `tickets` are kTickets zeros, and zeros
// again afterwards.
inline constexpr int kTickets = 8192;
struct OutputCodes {
  Quantize quantize;                  // out.codes null: they do not
  const float* inv_smooth = nullptr;  // [columns] or null: multiplies the outputs first
  unsigned* tickets = nullptr;
};

enum class NormForm : std::uint8_t { rms, layer };

// y = norm(x), times inv_smooth, as f32 and/or codes or terms; one block a row.
struct NormArguments {
  FloatRows x, out;  // out.values null: not as f32. May be x
  std::int64_t tokens = 0, width = 0;
  NormForm form = NormForm::rms;
  const float* gain = nullptr;        // [W]
  const float* beta = nullptr;        // [W], layer
  const float* inv_smooth = nullptr;  // [W] or null
  float eps = 0;
  Quantize quantize;
};
void launch_norm(const NormArguments& a, rt::Stream& stream);

// x *= inv_smooth (where there is one), then codes or terms of x.
struct QuantizeArguments {
  FloatRows x;
  std::int64_t tokens = 0, width = 0;
  const float* inv_smooth = nullptr;
  Quantize quantize;
};
void launch_quantize(const QuantizeArguments& a, rt::Stream& stream);

// --- weights ---

enum class FloatType : std::uint8_t { f32, f16, bf16 };

// A stored weight [N][K] in device memory.
struct FloatWeight {
  const void* values = nullptr;  // [N][float_stride(K)]
  FloatType type = FloatType::f32;
};
struct CodeWeight {
  const std::uint8_t* codes = nullptr;
  int bits = 8;
  int zero = 0;                                 // subtracted from each code where zeros is null
  const std::uint8_t* zeros = nullptr;          // uint schemes
  int group = 0;                                // columns of a scale; 0: the row
  const float* row_scales = nullptr;            // group 0
  const std::uint16_t* group_scales = nullptr;  // f16, times scale_mul
  float scale_mul = 1;
};

// A stored weight copied from the file's panels (tensor/weight_layout.h), on the device at `from`,
// to `to` in the order of layout.h. Every byte of `to` is written.
struct UploadCodes {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  int bits = 8;  // of a code: 8, 4, 3 or 2
  std::int64_t padded_rows = 0, padded_columns = 0;
  // 3 bits are two planes in the file: first the low two bits, then, with this flag, the third bit
  // of the same codes.
  bool thirds = false;
};
void launch_upload_codes(const UploadCodes& a, rt::Stream& stream);
// [Np/64][G][64] -> [Np][G], elements of 1 or 2 bytes.
struct UploadGroups {
  const void* from = nullptr;
  void* to = nullptr;
  int element_bytes = 2;
  std::int64_t padded_rows = 0, groups = 0;
};
void launch_upload_groups(const UploadGroups& a, rt::Stream& stream);
// [N][K] -> [N][float_stride(K)], pads 0, elements of 2 or 4 bytes.
struct UploadFloats {
  const void* from = nullptr;
  void* to = nullptr;
  int element_bytes = 4;
  std::int64_t rows = 0, columns = 0;
};
void launch_upload_floats(const UploadFloats& a, rt::Stream& stream);

// x[t] = table[ids[t]] as f32, or += where `add`.
struct EmbedArguments {
  bool is_float = true;
  FloatWeight floats;
  CodeWeight codes;
  std::int64_t width = 0;             // K
  const std::int32_t* ids = nullptr;  // [T]
  // The values that placeholder_id(row) refers to: the last draw's tokens, below 0 where there is none.
  const std::int32_t* drawn = nullptr;
  std::int64_t tokens = 0;
  FloatRows x;
  bool add = false;
};
void launch_embed(const EmbedArguments& a, rt::Stream& stream);

// --- matmul ---

// The epilogue applied to y = x W^T + bias.
enum class Finish : std::uint8_t {
  store,   // out = y
  add,     // out = out + y
  swiglu,  // two segments: out = silu(gate) * up, N / 2 columns
  gelu,    // out = gelu_new(y)
};

inline constexpr int kMostSegments = 3;

// One weight of up to three that share the input; outputs of segment i follow those of i - 1.
struct CodeSegment {
  CodeWeight weight;
  const float* bias = nullptr;  // [rows] or null
  std::int64_t rows = 0;
};
struct FloatSegment {
  FloatWeight weight;
  const float* bias = nullptr;
  std::int64_t rows = 0;
};

// int8 activations x integer weights, exact int32 sums, then floats in the order of
// docs/numerics.md: the codes' two groupings decide which of the four formulas. All segments have
// equal bits, group, and zeros or none.
struct IntMatmul {
  CodeSegment segments[kMostSegments];
  int segment_count = 0;
  std::int64_t tokens = 0, columns = 0;  // T, K
  CodeRows x;
  Finish finish = Finish::store;
  FloatRows out;
  OutputCodes codes;  // where makes_codes(*this)
};
void launch_int_matmul(const IntMatmul& a, rt::Stream& stream);
// Whether the kernel quantizes its outputs: few tokens, one output for all segments.
bool makes_codes(const IntMatmul& a);

// The order of the terms of `tokens` tokens on a device. `wgmma_adds_as_mma`: the result of
// launch_float_forms.
TermOrder term_order(std::int64_t tokens, const rt::DeviceInfo& device, bool wgmma_adds_as_mma);
// Compute capability 9.0: *differences becomes the number of sums whose bits differ between wgmma
// and mma, for numbers chosen to expose where the hardware truncates.
void launch_float_forms(unsigned* differences, rt::Stream& stream);

// f32 activations x floats. f32 weights: the chains of docs/numerics.md; 16-bit weights: close to
// them, on tensor cores, each output in one order whatever the number of tokens (float_gemm.cuh).
struct FloatMatmul {
  FloatSegment segments[kMostSegments];
  int segment_count = 0;
  std::int64_t tokens = 0, columns = 0;
  FloatRows values;  // for f32 weights
  TermRows x;        // for the others: 2 terms for f16, 3 for bf16
  Finish finish = Finish::store;
  FloatRows out;
};
void launch_float_matmul(const FloatMatmul& a, rt::Stream& stream);

// f32 activations x integer weights (act none): each weight is float(code - zero) * scale. On
// tensor cores, as 16-bit floats are.
struct WeightOnlyMatmul {
  CodeSegment segments[kMostSegments];
  int segment_count = 0;
  std::int64_t tokens = 0, columns = 0;
  TermRows x;  // 2 terms
  Finish finish = Finish::store;
  FloatRows out;
};
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

// Random-sign Hadamard rotation in blocks of n columns, forward or inverse (backend/tables.h,
// RotationTable).
struct RotateArguments {
  FloatRows x;
  std::int64_t tokens = 0, width = 0, block = 0;
  const float* factors = nullptr;  // [W]
  bool back = false;
  bool centred = false;  // in: the row's mean is taken off first
};
void launch_rotate(const RotateArguments& a, rt::Stream& stream);

// --- attention ---

// Layers that one launch quantizes: the number that fits into a kernel's arguments on every driver.
inline constexpr std::size_t kQuantizedLayers = 112;

// Keys or values of one layer: page p is at base + p * page_bytes.
struct KvPages {
  std::byte* base = nullptr;
  std::int64_t page_bytes = 0;
  KvType type = kUsualKv;
  KvCodes codes = {};
};

// The f16 copies that replace codes where blocks are not closed (KvResidual); base null: none. The
// copy of a page is named by the batch.
struct KvCopied {
  KvPages keys, values;
  KvResidual residual = {};
};

// Neighbouring rows of a batch that are consecutive positions of one sequence.
struct AttentionRun {
  std::int32_t first_row = 0, rows = 0;
  std::int32_t first_position = 0;
  std::int32_t pages_at = 0;   // pages[pages_at + position / 64] is the page of a position
  std::int32_t copies_at = 0;  // pages[copies_at + position / 64] its f16 copy, -1 for none
  // Addresses of fixed states, the low half first (SequenceRun::state_from, state_to), and the
  // previous and next run of the batch that write the same state; -1: none.
  std::uint32_t state_from[2] = {}, state_to[2] = {};
  std::int32_t previous_run = -1, next_run = -1;
};

// The batch on the device.
struct AttentionBatch {
  std::int64_t tokens = 0;
  const AttentionRun* runs = nullptr;  // [run_count], in order, cover rows 0..T-1
  int run_count = 0;
  const std::int32_t* row_runs = nullptr;  // [T]: the run of each row
  const std::int32_t* pages = nullptr;
  std::int64_t longest_run = 0;  // rows
  int single_runs = 0;           // runs of one row
  std::int64_t end = 0;          // at least the largest position + 1: results do not depend on it
};

struct AttentionHeads {
  int heads = 0, kv_heads = 0, head_dim = 0;  // H, H_kv, d
  int window = 0;                             // key j visible to i iff i - window < j <= i; 0: all
  // Query heads per kv head in the model, and the index within its group of the first head here:
  // ranks may share a kv head.
  int group = 1, first_head = 0;
};

// q and k of qkv [T][(H + 2 H_kv) d]: norm of each head (gain null: none), rotation by the row's
// position, q * its factor in place; k and v into their pages.
struct RopeAppendArguments {
  FloatRows qkv;
  AttentionBatch batch;
  AttentionHeads heads;
  const float* q_gain = nullptr;  // [d]
  const float* k_gain = nullptr;
  float q_eps = 0, k_eps = 0;
  // [positions][2][r/2] cosines, then sines, of a head's first r numbers; null: no rotation.
  const float* table = nullptr;
  int rotary_dims = 0;                // r
  const float* key_offset = nullptr;  // [H_kv d] keys are stored less it; null: as they are
  // The factor of q at position p is query_factors[p / query_period]; null: 1/sqrt(d).
  const float* query_factors = nullptr;
  int query_period = 1;
  KvPages keys, values;
  KvCopied copied;  // sides of whole blocks are written here
  Fault fault;
};
void launch_rope_append(const RopeAppendArguments& a, rt::Stream& stream);

// The blocks of one layer and the f16 copies from which they are encoded; null: a side without
// blocks.
struct KvQuantizeLayer {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::byte* key_copies = nullptr;
  std::byte* value_copies = nullptr;
};

// Blocks of positions become codes, on the sides that have blocks. The blocks are derived on the
// device from the runs, so that a recorded step quantizes those due in it. One launch serves all
// layers: blocks that were whole before the batch do not depend on the step's results.
struct KvQuantizeArguments {
  AttentionBatch batch;
  AttentionHeads heads;
  KvPages keys, values;  // of all layers but for their bases
  KvCopied copied;
  bool whole_before = false;  // blocks that were whole before the batch; else those that it closes
  int layer_count = 0;
  std::array<KvQuantizeLayer, kQuantizedLayers> layers = {};
};
void launch_kv_quantize(const KvQuantizeArguments& a, rt::Stream& stream);

// out [T][H d] = softmax(q k^T) v over the visible positions, read back from the pages. q is scaled
// and rotated already. With int8 keys q is quantized per (token, head):
//   score = s_q * fma(s, float(sum u q), m * float(sum q))
// A row's numbers depend on its position and its sequence alone, never on the batch. On tensor
// cores where keys and values have one type but f32 and head_dim is a multiple of 16 up to 256
// (packed: 128): near the written order (docs/cuda-kernels.md); else, and with `exact`, in it.
struct AttentionArguments {
  FloatRows qkv, out;
  AttentionBatch batch;
  AttentionHeads heads;
  KvPages keys, values;
  KvCopied copied;
  float* scratch = nullptr;  // attention_scratch_bytes (cuda/layout/attention_scratch.h)
  std::int64_t most_records = kMostRecords;  // for which it was sized
  OutputCodes codes;                         // where makes_codes(*this); its tickets always
  bool exact = false;
};
void launch_attention(const AttentionArguments& a, rt::Stream& stream);
// out [T][width] *= sigmoid(gates): x / (1 + exp(-gate)).
struct GateOutputsArguments {
  FloatRows out, gates;
  std::int64_t tokens = 0, width = 0;
};
void launch_gate_outputs(const GateOutputsArguments& a, rt::Stream& stream);
// Whether the kernel itself quantizes the outputs: on tensor cores, where the heads that share a kv
// head have whole groups of 128 columns.
bool makes_codes(const AttentionArguments& a);

}  // namespace leq::LEQ_GPU
