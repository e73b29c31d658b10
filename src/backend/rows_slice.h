// Blocks of activations that ranks compute together: each writes its columns, then all gather them.
#pragma once

#include <span>
#include <string_view>

#include "backend/rows.h"
#include "base/slice.h"
#include "comm/communicator.h"

namespace leq {

// Whether columns of a block can be given their codes before the row is whole: groups of 128 have
// scales of their own, or the scale is known.
bool coded_by_columns(const RowsFormat& format);

// Columns of a block, which keeps the memory, as a block of their own; they begin at a group of 128
// where they are coded. Where a row's codes need the whole row, f32 values alone.
Rows slice_columns(const Rows& rows, const Slice& columns);
// Rows of a block as a block of their own.
Rows slice_tokens(const Rows& rows, const Slice& tokens);
// The parameters of the block's consumer for these columns.
RowsConsumer slice_consumer(const RowsConsumer& consumer, const Rows& rows, const Slice& columns);

// Which rank computes which columns of a block, and which ranks receive them.
struct SharedColumns {
  Communicator& ranks;
  std::span<const Slice> columns;  // [ranks]
  Receivers to;
  const Rows& own;        // slice_columns of this rank's, wherever they lie
  std::string_view site;  // for errors

  bool received() const { return to == Receivers::all || ranks.leads(); }
};

}  // namespace leq
