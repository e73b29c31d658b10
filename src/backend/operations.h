// The operations of a decoder on one device, run in order and asynchronous until synchronize().
#pragma once

#include <cstdint>
#include <span>

#include "backend/decoder_parts.h"
#include "backend/kv_types.h"
#include "backend/rows.h"
#include "backend/rows_slice.h"
#include "backend/sample.h"
#include "backend/tables.h"

namespace leq {

class Operations {
 public:
  virtual ~Operations() = default;

  // x[t] = tokens[ids[t]] as f32, plus positions[at[t]] where there are learned positions.
  virtual void embed(const Embedding& embedding, Rows& x) = 0;
  // The first `tokens` rows of x into the rotated stream, or back out of it, in place.
  virtual void rotate(Rows& x, std::int64_t tokens, const RotationTable& rotation, Turn turn) = 0;
  virtual void gather_rows(const Rows& x, std::span<const std::int32_t> rows, Rows& out) = 0;
  // out = norm(x), as f32 and/or codes as out's format says. x and out may be the same block.
  virtual void norm(const Rows& x, std::int64_t tokens, const Norm& norm, const RowsFor& out) = 0;
  virtual void linear(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                      const RowsFor& out) = 0;
  // Before a step, for all layers of a cache whose types make codes of whole blocks: those blocks
  // become codes that the batch's queries read as codes, and that were whole before the batch.
  virtual void seal(const BatchView& batch, const AttentionShape& shape, RopeTable& rope,
                    std::span<const KvLayer> layers) = 0;
  // qkv [T][(H + 2 H_kv) d]: norms of q and k, rotation, q * 1/sqrt(d) in place; k and v to the
  // cache, and blocks that the batch itself makes whole to codes.
  virtual void rope_append(Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                           RopeTable& rope, const KvLayer& kv) = 0;
  // out [T][H d] = softmax(q k^T) v over each row's visible positions, read back from the cache.
  virtual void attention(const Rows& qkv, const BatchView& batch, const AttentionShape& shape,
                         const KvLayer& kv, const RowsFor& out) = 0;

  // Rows of which every rank has made its columns become whole where they are received, with the
  // codes that out's format wants. Ranks meet here; nothing happens where there is one.
  virtual void gather(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared);

  // drawn[i] = the token of row i of `logits` [requests][V] (sample.h), the same on every device;
  // below 0 where there is none: kAllBanned, or bad_logit_of the first logit that is NaN or
  // +infinity. A row without a token is no error of the others. Waits, and throws what synchronize
  // throws. The logits are as before.
  virtual void sample(const Rows& logits, std::span<const SampleRequest> requests,
                      std::span<std::int32_t> drawn) = 0;

  // The first rows of x = `values` [tokens][W] from the host: download's way back.
  virtual void assign(std::span<const float> values, Rows& x) = 0;
  // The first `tokens` rows of x as f32 [tokens][W] on the host. Waits, and throws what
  // synchronize throws.
  virtual void download(const Rows& x, std::int64_t tokens, std::span<float> out) = 0;
  // Waits for all operations so far. A device that works behind the host's back throws here what
  // the CPU's operations throw themselves: the Error of a row that is not finite.
  virtual void synchronize() = 0;
};

}  // namespace leq
