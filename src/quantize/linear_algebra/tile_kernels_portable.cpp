// The tile kernels for any processor, with vectors of four or two numbers that the compiler may map
// to vector instructions.
#include <cmath>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

template <class Number>
struct Portable {
  using Real = Number;
  static constexpr std::int64_t kLanes = 16 / sizeof(Real);
  static constexpr int kRows = 2, kVectors = 3;
  struct Vector {
    Real lanes[kLanes];
  };
  static Vector zero() { return {}; }
  static Vector load(const Real* from) {
    Vector vector;
    for (std::int64_t i = 0; i < kLanes; ++i) vector.lanes[i] = from[i];
    return vector;
  }
  static Vector broadcast(Real value) {
    Vector vector;
    for (std::int64_t i = 0; i < kLanes; ++i) vector.lanes[i] = value;
    return vector;
  }
  static void store(Real* to, const Vector& vector) {
    for (std::int64_t i = 0; i < kLanes; ++i) to[i] = vector.lanes[i];
  }
  static Vector add(const Vector& left, const Vector& right, const Vector& sum) {
    Vector vector;
    for (std::int64_t i = 0; i < kLanes; ++i)
      vector.lanes[i] = std::fma(left.lanes[i], right.lanes[i], sum.lanes[i]);
    return vector;
  }
  static void prefetch(const Real*) {}
};
using F32 = Portable<float>;
using F64 = Portable<double>;

#include "quantize/linear_algebra/tile_kernels.inc"

}  // namespace

const TileKernels& tile_kernels_portable() { return kTileKernels; }

}  // namespace leq
