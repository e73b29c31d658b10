#include "backend/linear_text.h"

#include <array>

#include "tensor/quant_scheme.h"

namespace leq {

std::string linear_text(const Linear& linear, std::string_view kernel) {
  constexpr std::array<std::string_view, 5> kInputs = {
      "f32", "int8 rows", "int8 groups of 128", "int8 of one scale", "int8 of a moving scale"};
  std::string text = scheme_name(linear.segments[0].weight.scheme) + " x ";
  text += kInputs[static_cast<std::size_t>(linear.act)];
  text += linear.inv_smooth == nullptr ? ", " : " smoothed, ";
  return text.append(kernel);
}

}  // namespace leq
