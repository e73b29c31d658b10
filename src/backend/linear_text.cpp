#include "backend/linear_text.h"

#include "tensor/quant_scheme.h"

namespace leq {

std::string linear_text(const Linear& linear, std::string_view kernel) {
  std::string text = scheme_name(linear.segments[0].weight.scheme) + " x ";
  text += act_inputs(linear.act);
  text += linear.inv_smooth == nullptr ? ", " : " smoothed, ";
  return text.append(kernel);
}

}  // namespace leq
