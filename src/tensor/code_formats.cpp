#include "tensor/code_formats.h"

#include <array>

namespace leq {

std::span<const CodeFormat> code_formats() {
  static const std::array kFormats = {nf4_format(),    b1_format(),    mxfp4_format(),
                                      iq4_nl_format(), nvfp4_format(), q4_k_format(),
                                      q5_k_format(),   q6_k_format()};
  return kFormats;
}

const CodeFormat* code_format(CodeKind kind) {
  for (const CodeFormat& format : code_formats()) {
    if (format.kind == kind) return &format;
  }
  return nullptr;
}

}  // namespace leq
