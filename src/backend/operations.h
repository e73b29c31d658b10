// The operations of a decoder on one device, run in order and asynchronous until synchronize().
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
  virtual ~PendingSample() = default;  // they are dropped, or have arrived
  // The tokens as Operations::sample gives them, once. Waits for the draw alone, not for later
  // operations, and throws the Error of a row that was not finite up to then.
  virtual void wait(std::span<std::int32_t> drawn) = 0;
  // Whether placeholder_id() refers to this draw: the device has drawn nothing since.
  virtual bool is_last() const = 0;
};

class Operations {
 public:
  virtual ~Operations() = default;

  // x[t] = tokens[ids[t]] as f32, plus positions[at[t]] where there are learned positions. An id
  // may be placeholder_id(row) after begin_sample.
  virtual void embed(const Embedding& embedding, Rows& x) = 0;
  // The first `tokens` rows of x into the rotated stream, or back out of it, in place.
  virtual void rotate(Rows& x, std::int64_t tokens, const RotationTable& rotation,
                      Direction direction) = 0;
  virtual void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) = 0;
  // out = norm(x), as f32 and/or codes as out's format says. x and out may be the same block.
  virtual void norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& out) = 0;
  virtual void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                      const RowsFor& out) = 0;
  // x += y, the first `tokens` rows. This and cap_logits throw Error on a device without them
  // (Layout::runs_post_norms).
  virtual void add_rows(const Rows& y, std::int64_t tokens, Rows& x);
  // The first `rows` rows of `logits` become cap * tanh(scale * logit / cap).
  virtual void cap_logits(Rows& logits, std::int64_t rows, float scale, float cap);
  // Which experts each row goes to (expert_routes.h), and the rows in groups. These three throw
  // Error on a device without experts (Layout::runs_experts).
  virtual void route(const Rows& logits, std::int64_t tokens, const Routing& routing,
                     std::string_view site, ExpertRoutes& routes);
  // out [R][F] = swiglu(gate_up_e x[token]) of each group; `grouped` [R][W] has the format of x and
  // keeps its rows in groups meanwhile.
  virtual void experts_gated(const Rows& x, const ExpertRoutes& routes,
                             const ExpertLinears& experts, Rows& grouped, Rows& out);
  // x[token] += weight * (down_e products) of each group, experts in ascending order.
  virtual void experts_add(const Rows& products, const ExpertRoutes& routes,
                           const ExpertLinear& down, Rows& x);
  // Before a step, for all layers of a cache whose types make codes of whole blocks: those blocks
  // become codes that the batch's queries read as codes, and that were whole before the batch.
  virtual void quantize_kv_blocks(const BatchView& batch, const AttentionShape& shape,
                                  std::span<const KvLayer> layers) = 0;
  // qkv [T][(H + 2 H_kv) d]: norms of q and k, rotation, q * its factor in place; k and v to the
  // cache, and blocks that the batch itself makes whole to codes.
  virtual void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                           RopeTable& rope, const KvLayer& kv) = 0;
  // out [T][H d] = softmax(q k^T) v over each row's visible positions, read back from the cache.
  virtual void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                         const KvLayer& kv, const RowsFor& out) = 0;

  // out [T][H_v d_v] = the output of Gated DeltaNet (decoder_parts.h) from `mixed` [T][channels +
  // H_v d_v] = q, k, v, z, which it may overwrite, and `gates` [T][2 H_v] = b, a. Each run of
  // the batch reads its state_from and writes its state_to. Devices that do not run it throw.
  virtual void delta_net(Rows& mixed, Rows& gates, const BatchView& batch, const DeltaShape& shape,
                         const RowsFor& out);

  // Ranks that share a model meet before their first gather: what they gather through from now on,
  // in order with this device's operations; null: `ranks` themselves. `window` is memory of this
  // device for what the others send, Layout::exchange_bytes, and outlives what is returned, which
  // must be gone before `ranks`. Its barrier() is where what a device did asynchronously
  // shows, after synchronize().
  virtual std::unique_ptr<Communicator> connect(Communicator& ranks, std::span<std::byte> window);
  // Rows of which every rank has made its columns become whole where they are received, with the
  // codes that out's format wants. Ranks meet here; nothing happens where there is one.
  virtual void gather(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared) = 0;

  // drawn[i] = the token of row i of `logits` [requests][V] (sample.h), the same on every device;
  // below 0 where there is none: kAllBanned, or bad_logit_of the first logit that is NaN or
  // +infinity. A row without a token is no error of the others. Waits, and throws what synchronize
  // throws. The logits are as before.
  virtual void sample(const Rows& logits, std::span<const SampleRequest> requests,
                      std::span<std::int32_t> drawn) = 0;
  // The same without waiting: the next step may be given to the device before the host knows its
  // tokens. Null, and nothing has happened, where a device does not work asynchronously, or
  // leaves a row's draw to the host. What is returned ends before the device does.
  virtual std::unique_ptr<PendingSample> begin_sample(const Rows&, std::span<const SampleRequest>) {
    return nullptr;
  }

  // The first rows of x = `values` [tokens][W] from the host: download's way back.
  virtual void assign(std::span<const float> values, Rows& x) = 0;
  // The first `tokens` rows of x as f32 [tokens][W] on the host. Waits, and throws what
  // synchronize throws.
  virtual void download(const Rows& x, std::int64_t tokens, std::span<float> out) = 0;
  // Waits for all operations so far. An asynchronous device throws here what
  // the CPU's operations throw themselves: the Error of a row that is not finite.
  virtual void synchronize() = 0;
};

}  // namespace leq
