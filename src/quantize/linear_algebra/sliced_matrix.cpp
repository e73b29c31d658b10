#include "quantize/linear_algebra/sliced_matrix.h"

namespace leq {

template <class Real>
void add_lane_product(const SlicedMatrix<Real>& f, const LaneProduct<Real>& product) {
  const auto add = product_kernel<Real>();
  const auto& [depth, columns, b, b_first, c, c_first, panels] = product;
  for (std::int64_t k = depth.first; k < depth.last;) {
    const std::int64_t end = std::min(depth.last, (k / kTileDepth + 1) * kTileDepth);
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      TileProduct<Real> tile = {.a_stride = kTileRows,
                                .b = b.at(panel, k - b_first),
                                .depth = end - k,
                                .c_stride = kPanelLanes<Real>};
      const Real* const ahead =
          panel + 1 < panels || end == depth.last ? nullptr : f.slice(end, columns.first);
      for (std::int64_t j = columns.first; j < columns.last; j += kTileRows) {
        tile.a = f.slice(k, j);
        tile.next_a = j + kTileRows < columns.last ? f.slice(k, j + kTileRows) : ahead;
        tile.c = c.at(panel, j - columns.first + c_first);
        add(tile);
      }
    }
    k = end;
  }
}

template void add_lane_product(const SlicedMatrix<float>&, const LaneProduct<float>&);
template void add_lane_product(const SlicedMatrix<double>&, const LaneProduct<double>&);

}  // namespace leq
