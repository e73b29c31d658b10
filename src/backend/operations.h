// The operations of a decoder on one device. They run in order, asynchronously until synchronize().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "backend/decoder_parts.h"
#include "backend/expert_routes.h"
#include "backend/kv_types.h"
#include "backend/rows.h"
#include "backend/rows_slice.h"
#include "backend/sample.h"
#include "backend/tables.h"

namespace leq {

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

  // x[t] = tokens[ids[t]] as f32, plus positions[at[t]] if positions are learned. After
  // begin_sample an id may be placeholder_id(row).
  virtual void embed(const Embedding& embedding, Rows& x) = 0;
  virtual void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) = 0;
  // out = norm(x), as f32 and/or codes according to out's format. x and out may be the same block.
  virtual void norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& out) = 0;
  virtual void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                      const RowsFor& out) = 0;
  // x += y for the first `tokens` rows. add_rows and cap_logits throw Error on devices that do not
  // implement them (Layout::runs_post_norms).
  virtual void add_rows(const Rows& y, std::int64_t tokens, Rows& x);
  // The first `rows` rows of `logits` become cap * tanh(scale * logit / cap).
  virtual void cap_logits(Rows& logits, std::int64_t rows, float scale, float cap);
  // Chooses the experts of each row (expert_routes.h) and groups the rows by expert. The three
  // operations of experts throw Error on devices without them (Layout::runs_experts).
  virtual void route(const Rows& logits, std::int64_t tokens, const Routing& routing,
                     std::string_view site, ExpertRoutes& routes);
  // out [R][F] = swiglu(gate_up_e x[token]) for the rows of each group. `grouped` [R][W], which has
  // the format of x, is scratch for the grouped rows.
  virtual void experts_gated(const Rows& x, const ExpertRoutes& routes,
                             const ExpertLinears& experts, Rows& grouped, Rows& out);
  // x[token] += weight * (down_e products) for each group, with experts in ascending order.
  virtual void experts_add(const Rows& products, const ExpertRoutes& routes,
                           const ExpertLinear& down, Rows& x);
  // Called before a step for all layers of a cache whose types encode whole blocks. It encodes the
  // blocks that the batch's queries read as codes and that were whole before the batch.
  virtual void quantize_kv_blocks(const BatchView& batch, const AttentionShape& shape,
                                  std::span<const KvLayer> layers) = 0;
  // For qkv [T][(H + 2 H_kv) d]: norms of q and k, rotation and q's factor in place; k and v are
  // stored in the cache, and blocks that the batch itself completes are encoded.
  virtual void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                           RopeTable& rope, const KvLayer& kv) = 0;
  // out [T][H d] = softmax(q k^T) v over each row's visible positions, read from the cache.
  virtual void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                         const KvLayer& kv, const RowsFor& out) = 0;

  // out [T][H_v d_v] = the output of Gated DeltaNet (decoder_parts.h) from b, a in `gates`
  // [T][2 H_v] and q, k, v, z in `mixed` [T][channels + H_v d_v], which may be overwritten. A run
  // reads its state_from and writes its state_to. Throws Error on devices without DeltaNet.
  virtual void delta_net(Rows& mixed, Rows& gates, const BatchView& batch, const DeltaShape& shape,
                         const RowsFor& out);

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
