// Blocks of activations that ranks compute together: each computes columns, then all gather them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/rows.h"
#include "base/slice.h"
#include "ranks/communicator.h"

namespace leq {

// Whether columns of a block can be quantized before the whole row is known: if groups of 128 have
// their own scales, or if the scale is known.
bool coded_by_columns(const RowsFormat& format);

// A view of a block's columns as a block; the original keeps the memory. If columns are coded, they
// begin at a group of 128. If codes need the whole row, the view has only f32 values.
Rows slice_columns(const Rows& rows, const Slice& columns);
// A view of some of a block's rows as a block.
Rows slice_tokens(const Rows& rows, const Slice& tokens);
// The parameters of the block's consumer for these columns.
RowsConsumer slice_consumer(const RowsConsumer& consumer, const Rows& rows, const Slice& columns);

// The columns of a block that each rank computes, and the ranks that receive the whole block.
struct SharedColumns {
  Communicator& ranks;
  std::span<const Slice> columns;  // [ranks]
  Receivers to;
  const Rows& own;        // this rank's slice_columns, at any address
  std::string_view site;  // for error messages

  bool received() const { return to == Receivers::all || ranks.leads(); }
};

// The device-independent part of Operations::gather: the bytes of a block of activations that each
// rank has computed. Codes that depend on whole rows are not included.
void share_rows(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared);

}  // namespace leq
