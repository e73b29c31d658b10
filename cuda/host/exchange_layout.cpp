#include "cuda/host/exchange_layout.h"

#include <algorithm>

#include "base/error.h"

namespace leq::LEQ_GPU {
namespace {

std::int64_t padded(const ByteRange& part) {
  return round_up_to(static_cast<std::int64_t>(part.count()), kPushBytes);
}

std::int64_t row_bytes_of(std::span<const SharedRows> blocks) {
  std::int64_t bytes = 0;
  for (const SharedRows& block : blocks) {
    for (const ByteRange& part : block.parts) bytes += padded(part);
  }
  return bytes;
}

// Describes the block's rows from `first` on; the caller sets the offset in the slot later.
ExchangePlane plane_of(const SharedRows& block, std::int64_t first) {
  const auto offset = static_cast<std::size_t>(first);
  ExchangePlane plane;
  plane.own = block.own + offset * block.own_stride;
  plane.own_stride = static_cast<std::int64_t>(block.own_stride);
  if (block.all != nullptr) plane.all = block.all + offset * block.stride;
  plane.stride = static_cast<std::int64_t>(block.stride);
  for (std::size_t rank = 0; rank < block.parts.size(); ++rank) {
    plane.first[rank] = static_cast<std::uint32_t>(block.parts[rank].first);
    plane.bytes[rank] = static_cast<std::uint32_t>(block.parts[rank].count());
  }
  return plane;
}

ExchangePart part_of(std::span<const SharedRows> blocks, std::int64_t first, std::int64_t rows) {
  ExchangePart part;
  part.rows = rows;
  for (std::size_t i = 0; i < blocks.size(); ++i) part.planes[i] = plane_of(blocks[i], first);
  std::int64_t at = 0;
  for (std::size_t rank = 0; rank < blocks[0].parts.size(); ++rank) {
    const std::int64_t begin = at;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      part.planes[i].at[rank] = static_cast<std::uint32_t>(at);
      at += rows * padded(blocks[i].parts[rank]);
    }
    part.of_rank.push_back({static_cast<std::size_t>(begin), static_cast<std::size_t>(at)});
    part.most_bytes = std::max(part.most_bytes, at - begin);
  }
  return part;
}

}  // namespace

void each_part(std::span<const SharedRows> blocks, std::int64_t slot_bytes, std::string_view site,
               const std::function<void(const ExchangePart&)>& use) {
  const std::int64_t rows = blocks[0].rows, row_bytes = row_bytes_of(blocks);
  ensure(blocks.size() <= kExchangePlanes && row_bytes <= slot_bytes, site, ": ", blocks.size(),
         " blocks with rows of ", row_bytes, " bytes, a slot has ", slot_bytes);
  const std::int64_t most = row_bytes > 0 ? slot_bytes / row_bytes : rows;
  for (std::int64_t first = 0; first < rows; first += most) {
    use(part_of(blocks, first, std::min(most, rows - first)));
  }
}

}  // namespace leq::LEQ_GPU
