// All storage types of tensors, for tests that try each of them.
#pragma once

#include <string>
#include <vector>

#include "tensor/code_formats.h"
#include "tensor/quant_scheme.h"

namespace leq::test {

// Without short names ("int4" for "int4-g128").
inline std::vector<QuantScheme> all_schemes() {
  std::vector<QuantScheme> schemes;
  for (const char* name : {"f32", "f16", "bf16", "int8", "int8-tensor", "uint8"}) {
    schemes.push_back(*parse_scheme(name));
  }
  for (const CodeFormat& format : code_formats()) schemes.push_back(format.scheme());
  for (const CodeKind kind : {CodeKind::int_, CodeKind::uint_}) {
    for (const int bits : {8, 4, 3, 2}) {
      for (const int group : {32, 64, 128}) schemes.push_back({kind, bits, Scaling::group, group});
    }
  }
  return schemes;
}

}  // namespace leq::test
