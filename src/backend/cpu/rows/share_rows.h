// Operations::gather on the CPU, but for the codes of whole rows: which bytes of a block of
// activations each rank has made.
#pragma once

#include <cstdint>

#include "backend/rows_slice.h"

namespace leq::cpu {

void share_rows(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared);

}  // namespace leq::cpu
