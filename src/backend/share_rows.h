// The device-independent part of Operations::gather: which bytes of a block of activations each
// rank has computed. Codes that need whole rows are not part of it.
#pragma once

#include <cstdint>

#include "backend/rows_slice.h"

namespace leq {

void share_rows(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared);

}  // namespace leq
