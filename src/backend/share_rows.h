// Operations::gather but for the codes of whole rows: which bytes of a block of activations each
// rank has made, wherever the block lies.
#pragma once

#include <cstdint>

#include "backend/rows_slice.h"

namespace leq {

void share_rows(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared);

}  // namespace leq
