// The layout of a gather in a slot of an exchange window. Bytes of one rank are contiguous: one
// plane after another, and each plane row by row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cuda/kernels/peers/exchange.h"
#include "ranks/communicator.h"

namespace leq::LEQ_GPU {

// Kernel arguments, except blocks and windows, for the rows of a gather that fit into one slot.
struct ExchangePart {
  ExchangePlane planes[kExchangePlanes];
  std::int64_t rows = 0;
  std::vector<ByteRange> of_rank;  // [ranks] byte range of each rank in the slot
  std::int64_t most_bytes = 0;     // largest size of a rank's range
};

// Splits the rows into parts that fit into a slot and calls `use` for each part. Throws Error
// naming the site if a single row is larger than a slot.
void each_part(std::span<const SharedRows> blocks, std::int64_t slot_bytes, std::string_view site,
               const std::function<void(const ExchangePart&)>& use);

}  // namespace leq::LEQ_GPU
