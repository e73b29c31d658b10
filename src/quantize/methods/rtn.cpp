// Method rtn: nearest codes in the range with the least squared error, in which each input channel
// is weighted by its mean square for the calibration tokens.
#include "quantize/methods/fit.h"
#include "quantize/methods/method_table.h"
#include "quantize/methods/super_choice.h"

namespace leq {
namespace {

// Excludes one scale per tensor, for which weighted_ranges gains nothing; absmax supports it.
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
