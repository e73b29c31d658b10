// Method nf4: the nearest of sixteen levels; each block of 64 weights has a common absmax.
#include "tensor/nf4.h"

#include "quantize/methods/method.h"

namespace leq {
namespace {

bool supports_nf4(const QuantScheme& scheme) { return scheme.kind == CodeKind::nf4; }

MethodResult choose_nearest_levels(const MethodInput& input) {
  require_finite(input);
  return {choose_nf4(input.weight, input.rows, input.columns), ""};
}

}  // namespace

QuantMethod nf4_method() {
  return {.name = "nf4",
          .summary = "the nearest of 16 levels of a normal distribution, blocks of 64 (type nf4)",
          .needs = Needs::nothing,
          .supports = supports_nf4,
          .choose = choose_nearest_levels,
          .own_type = "nf4"};
}

}  // namespace leq
