// Method rtn: the nearest code for the range of least squared error, each input channel weighted
// by its mean square on the calibration tokens.
#include "quantize/methods/fit.h"
#include "quantize/methods/method_table.h"

namespace leq {
namespace {

// One scale for a whole tensor is left to absmax: a search over all its rows at once gains nothing
// at 8 bits.
bool supports_rtn(const QuantScheme& scheme) {
  return (scheme.kind == CodeKind::int_ || scheme.kind == CodeKind::uint_) &&
         scheme.scaling != Scaling::tensor;
}

MethodResult choose_rtn(const MethodInput& input) {
  const RangeRule rule = input.scheme.kind == CodeKind::uint_ ? fit_weighted_zero : fit_weighted;
  return {nearest_codes(input, choose_ranges(input, rule, input_importance(input))), ""};
}

}  // namespace

QuantMethod rtn_method() {
  return {"rtn", "nearest code, range of least error weighted by the inputs (int and uint types)",
          Needs::diagonal, supports_rtn, choose_rtn};
}

}  // namespace leq
