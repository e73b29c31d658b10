// Method rtn: the nearest code for the range of least squared error, each input channel weighted
// by its mean square on the calibration tokens.
#include "quantize/methods/fit.h"
#include "quantize/methods/method_table.h"
#include "quantize/methods/super_choice.h"

namespace leq {
namespace {

// One scale for a whole tensor is left to absmax (weighted_ranges says why).
bool supports_rtn(const QuantScheme& scheme) {
  return scheme.is_integer() && scheme.scaling != Scaling::tensor;
}

MethodResult choose_rtn(const MethodInput& input) {
  if (input.scheme.is_super()) return choose_super_rtn(input);
  return {nearest_codes(input, weighted_ranges(input)), ""};
}

}  // namespace

QuantMethod rtn_method() {
  return {.name = "rtn",
          .summary =
              "nearest code, range of least error weighted by the inputs (int, uint and k types)",
          .needs = Needs::diagonal,
          .supports = supports_rtn,
          .choose = choose_rtn,
          .divides_rows = true,
          .own_type = "int4-g128"};
}

}  // namespace leq
