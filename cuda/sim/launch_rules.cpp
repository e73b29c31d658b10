#include "cuda/sim/launch_rules.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace simt {

void require_launch(const Grid& grid) {
  const std::size_t threads = grid.threads.count();
  const char* wrong = nullptr;
  if (threads == 0 || threads > 1024) wrong = "a block has 1 to 1,024 threads";
  if (grid.threads.z > 64) wrong = "a block has at most 64 threads in z";
  if (grid.blocks.count() == 0) wrong = "a grid has at least one block";
  if (grid.blocks.y > 65535 || grid.blocks.z > 65535) wrong = "at most 65,535 blocks in y and z";
  if (grid.cluster == 0 || grid.cluster > 8 || grid.blocks.x % grid.cluster != 0) {
    wrong = "a cluster has 1 to 8 blocks, and the blocks in x are a multiple of it";
  }
  if (grid.cluster > 1 && grid.early) wrong = "clusters do not begin early here";
  if (grid.shared_bytes > grid.shared_limit)
    wrong = "more shared memory than the kernel was allowed";
  if (wrong == nullptr) return;
  std::fprintf(stderr, "simt: %s: launch refused: %s (%u,%u,%u blocks of %u,%u,%u, %zu bytes)\n",
               grid.kernel, wrong, grid.blocks.x, grid.blocks.y, grid.blocks.z, grid.threads.x,
               grid.threads.y, grid.threads.z, grid.shared_bytes);
  std::abort();
}

std::vector<unsigned> order(unsigned n, std::uint64_t seed) {
  std::vector<unsigned> items(n);
  std::iota(items.begin(), items.end(), 0u);
  if (seed == 0) return items;
  for (unsigned i = n; i > 1; --i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(items[i - 1], items[(seed >> 33) % i]);
  }
  return items;
}

}  // namespace simt
