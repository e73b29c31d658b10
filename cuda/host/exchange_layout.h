// Where the parts of a gather lie in a slot of a window: all parts of a rank together, those of
// each plane row by row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "cuda/kernels/peers/exchange.h"

namespace leq::LEQ_GPU {

// Rows of a gather that fit a slot, as kernels see them; blocks and windows are left open.
struct ExchangePart {
  ExchangePlane planes[kExchangePlanes];
  std::int64_t rows = 0;
  std::vector<ByteRange> of_rank;  // [ranks] bytes of the slot
  std::int64_t most_bytes = 0;     // of one rank
};

// Calls `use` for as many parts as the rows take. Throws Error naming the site where a row is more
// than a slot.
void each_part(std::span<const SharedRows> blocks, std::int64_t slot_bytes, std::string_view site,
               const std::function<void(const ExchangePart&)>& use);

}  // namespace leq::LEQ_GPU
