// Methods absmax and zeropoint: the nearest code for the plain range of each row or group.
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
  return {"absmax", "nearest code, range from the largest |w|; no calibration (int types)",
          Needs::nothing, supports_int, choose_absmax};
}

QuantMethod zeropoint_method() {
  return {"zeropoint", "nearest code, range from min to max; no calibration (uint types)",
          Needs::nothing, supports_uint, choose_zeropoint};
}

}  // namespace leq
