// The tables of mxfp4 and iq4_nl, from docs/leq-format.md.
#pragma once

#include "tensor/quant_scheme.h"

namespace leq::test {

// The integer of a code; other schemes' codes are returned unchanged.
inline int table_number(const QuantScheme& scheme, int code) {
  static constexpr int kMxfp4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  static constexpr int kIq4[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
  if (!scheme.has_table()) return code;
  return scheme_name(scheme) == "iq4_nl" ? kIq4[code] : kMxfp4[code];
}

}  // namespace leq::test
