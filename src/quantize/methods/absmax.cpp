// Methods absmax and zeropoint: nearest codes in the range of each row or group, without weighting.
#include "quantize/methods/fit.h"
#include "quantize/methods/method_table.h"

namespace leq {
namespace {

bool supports_int(const QuantScheme& scheme) { return scheme.kind == CodeKind::int_; }
bool supports_uint(const QuantScheme& scheme) { return scheme.kind == CodeKind::uint_; }

MethodResult choose_absmax(const MethodInput& input) {
  return {nearest_codes(input, choose_ranges(input, fit_signed)), ""};
}

MethodResult choose_zeropoint(const MethodInput& input) {
  return {nearest_codes(input, choose_ranges(input, fit_minmax)), ""};
}

}  // namespace

QuantMethod absmax_method() {
  return {.name = "absmax",
          .summary = "nearest code, range from the largest |w|; no calibration (int types)",
          .needs = Needs::nothing,
          .supports = supports_int,
          .choose = choose_absmax,
          .divides_rows = true};
}

QuantMethod zeropoint_method() {
  return {.name = "zeropoint",
          .summary = "nearest code, range from min to max; no calibration (uint types)",
          .needs = Needs::nothing,
          .supports = supports_uint,
          .choose = choose_zeropoint,
          .divides_rows = true,
          .own_type = "uint8"};
}

}  // namespace leq
