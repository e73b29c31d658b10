// The table of methods: each method is one file and one line here.
#include "quantize/methods/method.h"

#include "base/error.h"
#include "base/text.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/gptq.h"

namespace leq {

std::span<const QuantMethod> quant_methods() {
  static const QuantMethod kMethods[] = {
      absmax_method(),         zeropoint_method(), rtn_method(),       zeroquant_method(),
      zeroquant_plus_method(), gptq_method(),      gptq_plus_method(), nf4_method(),
      billm_method(),
  };
  return kMethods;
}

const QuantMethod& require_method(std::string_view name) {
  std::vector<std::string> names;
  for (const QuantMethod& method : quant_methods()) {
    if (method.name == name) return method;
    names.emplace_back(method.name);
  }
  fail(ErrorKind::bad_setting, "unknown method \"", printable(name), "\"; use one of ",
       join(names));
}

// Methods absmax and zeropoint: nearest codes in the range of each row or group, without weighting.

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

// Method rtn: nearest codes in the range with the least squared error, in which each input channel
// is weighted by its mean square for the calibration tokens.

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
