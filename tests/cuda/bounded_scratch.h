// Scratch of attention with a limited number of records; detects writes beyond its end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/kernels/launch.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {

class BoundedScratch {
 public:
  // Sets the scratch of `a`, whose batch and heads must be set.
  BoundedScratch(AttentionArguments& a, std::int64_t most_records)
      : room_(floats(a, most_records)),
        memory_(std::vector<float>(std::max(room_, floats(a, kMaxRecords)), kUntouched)) {
    a.scratch = memory_.data();
    a.most_records = most_records;
  }
  void expect_kept() const {
    const std::vector<float> all = memory_.host();
    const auto behind = all.begin() + static_cast<std::ptrdiff_t>(room_);
    EXPECT_EQ(std::count(behind, all.end(), kUntouched), all.end() - behind)
        << "records beyond the end of scratch";
  }

 private:
  static constexpr float kUntouched = -3e33f;

  static std::size_t floats(const AttentionArguments& a, std::int64_t most_records) {
    return attention_scratch_bytes(a.batch.tokens, a.heads.heads, a.heads.kv_heads,
                                   a.heads.head_dim, a.batch.end, most_records) /
           sizeof(float);
  }

  std::size_t room_;
  DeviceArray<float> memory_;
};

}  // namespace leq::LEQ_GPU
