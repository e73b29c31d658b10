// Downloads rows to the host through pinned memory.
#pragma once

#include <cstdint>
#include <span>

#include "backend/rows.h"
#include "cuda/host/faults.h"
#include "cuda/host/memory.h"

namespace leq::LEQ_GPU {

class RowDownload {
 public:
  RowDownload(rt::Stream& stream, Faults& faults) : stream_(stream), faults_(faults) {}

  // Allocates pinned memory for rows of at most this many bytes; 0: the default.
  void reserve(std::size_t row_bytes = 0);
  // Copies to out [T][W]. Waits for the stream, and throws the faults that it reports.
  void download(const Rows& x, std::int64_t tokens, std::span<float> out);
  // Downloads one row, which is valid until the next call.
  std::span<const float> row(const Rows& x, std::int64_t row);

 private:
  rt::Stream& stream_;
  Faults& faults_;
  Pinned landing_;
};

}  // namespace leq::LEQ_GPU
