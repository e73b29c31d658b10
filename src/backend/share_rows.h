// The device-independent part of Operations::gather: the bytes of a block of activations that each
// rank has computed. Codes that depend on whole rows are not included.
#pragma once

#include <cstdint>

#include "backend/rows_slice.h"

namespace leq {

void share_rows(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared);

}  // namespace leq
