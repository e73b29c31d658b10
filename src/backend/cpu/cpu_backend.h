// The CPU backend: one pool of threads, and the kernels of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/layout.h"
#include "base/cpu_features.h"
#include "base/topology.h"

namespace leq {

struct CpuOptions {
  int threads = 0;          // 0: one for each usable core
  Isa isa = Isa::portable;  // chosen_isa() returns the best one
  // Placement of threads and weights on the memory nodes; without effect on a single node.
  NumaMode numa = NumaMode::off;
  // How weights are prefetched if there are few tokens; affects only the speed.
  Fetch fetch = best_fetch();
};

// Layouts and sizes, computed without starting threads or allocating memory.
class CpuLayout final : public Layout {
 public:
  // For a backend with `threads` threads; 0: one for each usable core.
  explicit CpuLayout(int threads);

  RowsFormat format_for(const Linear& consumer) const override;
  RowsLayout rows(std::int64_t capacity, std::int64_t width,
                  const RowsFormat& format) const override;
  std::size_t weight_bytes(const WeightView&) const override { return 0; }
  std::size_t page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) const override;
  // Bytes of scratch for all linears, plus those for attention.
  std::size_t scratch_bytes(std::int64_t tokens, const AttentionShape& shape,
                            std::int64_t context) const override;
  // Bytes of scratch for all linears, plus those for the delta net.
  std::size_t delta_scratch_bytes(std::int64_t tokens, const DeltaShape& shape) const override;
  std::size_t linear_scratch_bytes() const;
  // The same for every instruction set.
  std::string_view kv_layout() const override { return "CPU pages 1"; }

 private:
  int threads_;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace leq
