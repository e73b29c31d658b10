// The layout of a gather in a slot of an exchange window: all parts of a rank are contiguous, those
// of each plane row by row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "cuda/kernels/peers/exchange.h"

namespace leq::LEQ_GPU {

// Kernel arguments for the rows of a gather that fit a slot; blocks and windows are not set.
struct ExchangePart {
  ExchangePlane planes[kExchangePlanes];
  std::int64_t rows = 0;
  std::vector<ByteRange> of_rank;  // [ranks] bytes of the slot
  std::int64_t most_bytes = 0;     // of one rank
};

// Splits the rows into parts that fit a slot and calls `use` for each. Throws Error naming the site
// where a row is larger than a slot.
void each_part(std::span<const SharedRows> blocks, std::int64_t slot_bytes, std::string_view site,
               const std::function<void(const ExchangePart&)>& use);

}  // namespace leq::LEQ_GPU
