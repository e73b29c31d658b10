// The operations of a decoder that every device implements (Operations), and their arguments. The
// letters of the shapes are defined in docs/glossary.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kv_types.h"
#include "backend/memory.h"
#include "backend/rows.h"
#include "backend/rows_slice.h"
#include "sampling/sample.h"
#include "tensor/weight_layout.h"

namespace leq {

enum class NormKind : std::uint8_t { rms, layer };

struct Norm {
  NormKind kind = NormKind::rms;
  const float* gain = nullptr;  // [W]
  const float* beta = nullptr;  // [W], for layer norm only
  float eps = 1e-5f;
  std::int64_t width = 0;  // W
};

// Weights that share one input (q, k, v; gate, up), used together without a copy. The outputs of
// segment i follow those of segment i-1.
struct LinearSegment {
  WeightView weight;            // [O_i][I]
  const float* bias = nullptr;  // [O_i]
};
struct Linear {
  std::vector<LinearSegment> segments;
  std::int64_t inputs = 0;   // I
  std::int64_t outputs = 0;  // O, the sum over the segments
  ActKind act = ActKind::none;
  float act_scale = 0;  // act tensor: the step between two codes
  OnlineMode online_mode = OnlineMode::safe;
  const float* inv_smooth = nullptr;  // [I], multiplies the inputs; null: no factors
  std::string name;                   // "layers.3.qkv", for errors and plans

  std::span<const LinearSegment> parts() const { return segments; }
};

// The function f of an MLP; base/float_math.h has the formulas. clamped_swiglu is a function of
// gate and up, so that it is only used in gated MLPs.
enum class Activation : std::uint8_t { silu, gelu_tanh, clamped_swiglu };

// The function applied to y = x W^T + b. What an activation gives is quantized as out's format
// says.
struct Epilogue {
  enum class Kind : std::uint8_t {
    none,       // out = y
    add,        // out += y (the residual stream)
    gated,      // segments gate and up: out = f(gate) * up, or f(gate, up)
    activated,  // out = f(y)
  };
  Kind kind = Kind::none;
  Activation activation = Activation::silu;  // f

  static const Epilogue none, add;
  static constexpr Epilogue gated(Activation f) { return {Kind::gated, f}; }
  static constexpr Epilogue activated(Activation f) { return {Kind::activated, f}; }
  bool is_gated() const { return kind == Kind::gated; }
  bool operator==(const Epilogue&) const = default;
};
inline constexpr Epilogue Epilogue::none = {}, Epilogue::add = {Epilogue::Kind::add};

struct RopeTable;

struct AttentionShape {
  int heads = 0;                 // H
  int kv_heads = 0;              // H_kv
  int head_dim = 0;              // d, even
  int window = 0;                // W: key j is visible to query i iff i - W < j <= i; 0: no limit
  const Norm* q_norm = nullptr;  // norm of each head (Qwen3), or null
  const Norm* k_norm = nullptr;
  bool rotary = true;
  int rotary_dims = 0;                 // RoPE rotates the first rotary_dims numbers; 0: all
  bool output_gate = false;            // a row has H d gates after v: out * sigmoid(gate)
  bool tempered = false;               // q is multiplied by the RopeTable's query_factors, not by:
  float query_scale = 0;               // the factor of q; 0: 1 / sqrt(d)
  const float* key_offset = nullptr;   // [H_kv d], subtracted from stored keys; null: none
  const float* sink_logits = nullptr;  // [H], one more score of each softmax; null: none
  const Norm* v_norm = nullptr;        // norm of each value head, or null
  bool queries_only = false;           // rows have no k and v; the cache has them already
  bool both_ways = false;              // keys of later rows of the run are visible, within W too
  // If ranks share the heads of a model, a rank's heads may begin or end within a kv head:
  int group = 0;       // query heads of a kv head in the model; 0: H / H_kv
  int first_head = 0;  // index of this rank's first query head in its kv head's group
};

int rotary_dims(const AttentionShape& shape);    // with 0 replaced by head_dim
float query_scale(const AttentionShape& shape);  // with 0 replaced by float(1 / sqrt(double(d)))
// Offset of the gates in a row, where they follow q, k and v: (H + 2 H_kv) d, or H d with queries
// alone; and a row's width.
std::int64_t gates_at(const AttentionShape& shape);
std::int64_t qkv_width(const AttentionShape& shape);

// Gated DeltaNet of one layer. Token t has the inputs m_t [channels] (q, k, v of all heads),
// z_t [H_v d_v], b_t and a_t [H_v]. Computed in this order (orders of sums: docs/numerics.md):
//   c = silu(sum over j of conv[j] * m_{t - taps + 1 + j}), zeros before the first token
//   q = l2(q) / sqrt(d_k), k = l2(k) of each key head, l2(x) = x / sqrt(sum of x^2 + 1e-6)
//   beta = sigmoid(b), alpha = exp(-exp(a_log) * softplus(a + dt_bias))
//   S = alpha S; u = beta (v - S^T k); S = S + k u^T; o = S^T q, for each value head
//   out = rms_norm(o) * silu(z), where the norm is over each value head
struct DeltaShape {
  int key_heads = 0;               // H_k
  int value_heads = 0;             // H_v; value head h reads key head h / (H_v / H_k)
  int key_dim = 0;                 // d_k
  int value_dim = 0;               // d_v
  int taps = 0;                    // taps of the convolution
  const float* conv = nullptr;     // [taps][channels]
  const float* a_log = nullptr;    // [H_v]
  const float* dt_bias = nullptr;  // [H_v]
  Norm norm;                       // norm over each value head [d_v]
  std::size_t state_at = 0;        // byte offset of this layer's part of a state
  // If ranks share a model's heads: the numbers of heads of all ranks (0: those of this rank), and
  // this rank's first key head. conv, a_log, dt_bias, and rows of b and a are for all heads.
  int all_key_heads = 0, all_value_heads = 0, first_key_head = 0;

  std::int64_t keys() const { return std::int64_t{key_heads} * key_dim; }
  std::int64_t values() const { return std::int64_t{value_heads} * value_dim; }
  std::int64_t channels() const { return 2 * keys() + values(); }
  // The shape with the heads of all ranks.
  DeltaShape whole() const;
  int group() const;             // value heads per key head
  int first_value_head() const;  // index among all ranks' heads
};

// A layer's part of a state, in f32: S of each value head, followed by the last inputs of the
// convolution [taps - 1][channels], oldest first. S [d_k][d_v] is stored in blocks of 32 columns,
// [d_k][32] each; the last block is only as wide as the remaining columns.
inline constexpr int kDeltaColumns = 32;
std::int64_t delta_state_numbers(const DeltaShape& shape);

// Gated short convolution of one layer. Token t has the inputs b_t, c_t and x_t [channels]:
//   u_t = b_t * x_t
//   out_t = c_t * (sum over j of conv[j] * u_{t - taps + 1 + j}), zeros before the first token
struct ShortConvShape {
  std::int64_t channels = 0;    // of this rank
  int taps = 0;                 // taps of the convolution
  const float* conv = nullptr;  // [taps] rows of conv_stride numbers, of which this rank's channels
  std::int64_t conv_stride = 0;  // channels of all ranks
  std::size_t state_at = 0;      // byte offset of this layer's part of a state
};
// A layer's part of a state, in f32: the last u [taps - 1][channels], oldest first.
std::int64_t short_conv_state_numbers(const ShortConvShape& shape);

// The neighbouring query heads of this rank that read one kv head; there may be none.
struct QueryHeads {
  int first = 0, count = 0;
};
int query_group(const AttentionShape& shape);  // most query heads of one kv head
QueryHeads query_heads(const AttentionShape& shape, int kv_head);

// Rows of embedding tables: of tokens and, if positions are learned, of positions.
struct Embedding {
  const WeightView& tokens;  // [V][W]
  std::span<const std::int32_t> ids;
  const WeightView* positions = nullptr;  // [context][W]; null: no learned positions
  std::span<const std::int32_t> at = {};  // the position of each token
  float scale = 1;                        // factor on the rows of `tokens`
};

// The experts to which the rows of a step are routed: p = softmax(logits) or sigmoid(logits); the k
// largest p, or p + choice_bias, are chosen, of equal ones the lower id; the weights are those p,
// divided by their sum (of sigmoids: plus 1e-6) if normalized, times weight_scale.
struct Routing {
  std::int64_t experts = 0;  // E
  std::int64_t active = 0;   // k
  bool normalized = false;   // weights are divided by their sum
  bool sigmoid = false;
  const float* choice_bias = nullptr;  // [E]; null: none
  float weight_scale = 1;              // multiplies weights
  const float* scales = nullptr;       // [E], multiplies them too; null: no factors

  float sum_offset() const { return sigmoid ? 1e-6f : 0.0f; }
};

// The rows of a step: each token has one row for each of its experts, R = T k in total. Rows are
// grouped by ascending expert; within a group tokens are in ascending order.
struct ExpertRoutes {
  std::int64_t tokens = 0;            // T
  std::vector<std::int64_t> first;    // [E + 1]; group e has rows [first[e], first[e + 1])
  std::vector<std::int32_t> experts;  // experts that have rows, ascending
  std::vector<std::int32_t> token;    // [R]
  std::vector<float> weight;          // [R]

  std::int64_t rows() const { return static_cast<std::int64_t>(token.size()); }
  std::int64_t rows_of(std::int64_t expert) const {
    const auto e = static_cast<std::size_t>(expert);
    return first[e + 1] - first[e];
  }
  // Whether row r is token r, because one expert has all tokens.
  bool in_place() const { return experts.size() == 1 && rows() == tokens; }
};

// Routes rows by a router's logits, [T][E] f32 rows on the host (docs/numerics.md has the order of
// sums). Unless `shared` is null, it gets the routes of an expert that all rows use, with the
// weight sigmoid(z), where z is column E. Throws Error with `site` and the row if a logit is not
// finite.
void route_rows(const Rows& logits, std::int64_t tokens, const Routing& routing,
                std::string_view site, ExpertRoutes& routes, ExpertRoutes* shared = nullptr);

// The linear of an expert; and the parameters of the linear that reads an expert's outputs.
using ExpertLinear = std::function<const Linear&(std::int64_t expert)>;
using ExpertReader = std::function<RowsConsumer(std::int64_t expert)>;
struct ExpertLinears {
  ExpertLinear gate_up;  // segments gate, up
  ExpertReader down;
  Activation activation = Activation::silu;
};

// The input rows of experts' down linears.
struct ExpertProducts {
  const Rows& rows;  // [R][F]
  const ExpertRoutes& routes;
  const ExpertLinear& down;
};

// Tables that a model keeps in device memory in addition to its weights.

// Rotary embedding: pairs (i, i + d/2) are rotated by position * inv_freq[i]. Operations fill the
// table of cosines and sines as positions are first used.
struct RopeTable {
  std::span<const float> inv_freq;  // [d/2], scaled; empty without rotary embedding
  float attention_factor = 1.0f;
  std::int64_t context = 0;  // largest position + 1
  std::int64_t filled = 0;
  Buffer memory;  // [context][2][d/2] f32: cosines, then sines
  // q of position p is multiplied by query_factors[p / query_period], which is its scale times a
  // temperature. If the period is 0, it is multiplied by query_scale(shape) at every position.
  std::int64_t query_period = 0;
  Buffer query_factors = {};  // [(context - 1) / period + 1] f32
};
RopeTable make_rope(DeviceMemory& memory, std::span<const float> inv_freq, float attention_factor,
                    std::int64_t context);
// Sets the factors of all positions up to rope.context; throws Error if there are too few.
void set_query_factors(DeviceMemory& memory, RopeTable& rope, std::int64_t period,
                       std::span<const float> factors);
// Computes `count` rows [2][d/2] of the table from position `first` on, for devices to copy:
// angle = float(pos) * inv; c, s = float(cos(double(angle))), float(sin(double(angle))), each times
// the attention factor
void fill_rope_rows(const RopeTable& rope, std::int64_t first, std::int64_t count, float* rows);

// The operations of a decoder on one device. They run in order, asynchronously until synchronize().

// The result of an asynchronous draw (Operations::begin_sample).
class PendingSample {
 public:
  virtual ~PendingSample() = default;  // the tokens are dropped unless wait() has returned
  // Writes the tokens as Operations::sample does; may be called once. Waits for the draw, not for
  // later operations, and throws the Error of a row that was not finite before the draw.
  virtual void wait(std::span<std::int32_t> drawn) = 0;
  // Whether placeholder_id() refers to this draw, because the device has not drawn since.
  virtual bool is_last() const = 0;
};

class Operations {
 public:
  virtual ~Operations() = default;

  // x[t] = scale * tokens[ids[t]] in f32, plus positions[at[t]] if positions are learned. After
  // begin_sample an id may be placeholder_id(row).
  virtual void embed(const Embedding& embedding, Rows& x) = 0;
  virtual void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) = 0;
  // out = norm(x), as f32 and/or codes according to out's format. x and out may be the same block.
  virtual void norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& out) = 0;
  virtual void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                      const RowsFor& out) = 0;
  // x = scale * (x + y) for the first `tokens` rows.
  virtual void add_rows(const Rows& y, std::int64_t tokens, float scale, Rows& x) = 0;
  // x *= y for the first `tokens` rows.
  virtual void multiply_rows(const Rows& y, std::int64_t tokens, Rows& x) = 0;
  // The first `rows` rows of `logits` become cap * tanh(scale * logit / cap).
  virtual void cap_logits(Rows& logits, std::int64_t rows, float scale, float cap) = 0;
  // logits [T][E] = the router's outputs, from which the experts of each row are chosen
  // (route_rows). Rows are grouped by expert. The logits may be overwritten.
  virtual void route(const Rows& x, std::int64_t tokens, const Linear& router, Rows& logits,
                     const Routing& routing, ExpertRoutes& routes, ExpertRoutes* shared) = 0;
  // out [R][F] = f(gate_e x[token]) * up_e x[token] for the rows of each group. `grouped` [R][W],
  // which has the format of x, is scratch for the grouped rows.
  virtual void experts_gated(const Rows& x, const ExpertRoutes& routes,
                             const ExpertLinears& experts, Rows& grouped, Rows& out) = 0;
  // x[token] += weight * (down_e products) for each group, with experts in ascending order: first
  // of the router's experts, then of a shared expert, if `parts` has two. `fresh`: x = 0 before.
  virtual void experts_add(std::span<const ExpertProducts> parts, bool fresh, Rows& x) = 0;
  // Called before a step for all layers of a cache whose types encode whole blocks. It encodes the
  // blocks that the batch's queries read as codes and that were whole before the batch.
  virtual void quantize_kv_blocks(const BatchView& batch, const AttentionShape& shape,
                                  std::span<const KvLayer> layers) = 0;
  // For qkv [T][(H + 2 H_kv) d]: norms of q, k and v, rotation and q's factor in place; k and v are
  // stored in the cache, and blocks that the batch itself completes are encoded. With queries_only
  // for q alone, [T][H d].
  virtual void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                           RopeTable& rope, const KvLayer& kv) = 0;
  // out [T][H d] = softmax(q k^T) v over each row's visible positions, read from the cache. A
  // head's sink adds exp(sink) to the softmax's sum and nothing to its product with v.
  virtual void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                         const KvLayer& kv, const RowsFor& out) = 0;

  // out [T][H_v d_v] = the output of Gated DeltaNet (DeltaShape) from b, a in `gates`
  // [T][2 H_v] and q, k, v, z in `mixed` [T][channels + H_v d_v], which may be overwritten. A run
  // reads its state_from and writes its state_to.
  virtual void delta_net(Rows& mixed, Rows& gates, const BatchView& batch, const DeltaShape& shape,
                         const RowsFor& out) = 0;

  // out [T][channels] = the gated short convolution (ShortConvShape) of b, c, x in `mixed`
  // [T][3 channels], which may be overwritten. States are as for delta_net.
  virtual void short_conv(Rows& mixed, const BatchView& batch, const ShortConvShape& shape,
                          const RowsFor& out) = 0;

  // Called by all ranks that share a model before their first gather. Returns the communicator for
  // later gathers, in order with this device's operations; null: use `ranks`. `window` is device
  // memory (Layout::exchange_bytes) that receives data of other ranks. It must outlive the result,
  // and so must `ranks`. barrier(), called after synchronize(), throws the errors of asynchronous
  // exchanges.
  virtual std::unique_ptr<Communicator> connect(Communicator& ranks, std::span<std::byte> window);
  // Gathers rows, of which every rank has computed some columns, on the ranks that receive them,
  // with the codes that out's format needs. All ranks must call it; a single rank does nothing.
  virtual void gather(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared) = 0;

  // drawn[i] = the token of row i of `logits` [requests][V] (sample.h), the same on every device.
  // For a row without a token drawn[i] is below 0: kAllBanned, or bad_logit_of the first logit that
  // is NaN or +infinity; other rows are not affected. Waits, and throws what synchronize throws.
  // `logits` are unchanged.
  virtual void sample(const Rows& logits, std::span<const SampleRequest> requests,
                      std::span<std::int32_t> drawn) = 0;
  // Like sample, but does not wait, so that the next step can be enqueued before the host has the
  // tokens. Returns null, without effect, if the device is not asynchronous or leaves a row's draw
  // to the host. The result must be destroyed before the device.
  virtual std::unique_ptr<PendingSample> begin_sample(const Rows&, std::span<const SampleRequest>) {
    return nullptr;
  }

  // Copies `values` [tokens][W] from the host to the first rows of x; the inverse of download.
  virtual void assign(std::span<const float> values, Rows& x) = 0;
  // Copies the first `tokens` rows of x as f32 [tokens][W] to the host. Waits, and throws what
  // synchronize throws.
  virtual void download(const Rows& x, std::int64_t tokens, std::span<float> out) = 0;
  // Waits for all operations so far. An asynchronous device throws here the Error of a row that is
  // not finite, which the CPU's operations throw themselves.
  virtual void synchronize() = 0;
};

}  // namespace leq
