// The table of methods: a method is one file and one line here.
#include "base/error.h"
#include "base/text.h"
#include "quantize/methods/method_table.h"

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

}  // namespace leq
