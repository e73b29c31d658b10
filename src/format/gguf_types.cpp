#include "format/gguf_types.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "format/gguf_blocks.h"

namespace leq {
namespace {

constexpr std::array<GgufType, 21> kTypes = {{
    {.id = 0, .name = "F32", .bytes = 4, .floats = DType::f32},
    {.id = 1, .name = "F16", .bytes = 2, .floats = DType::f16},
    {.id = 30, .name = "BF16", .bytes = 2, .floats = DType::bf16},
    {2, "Q4_0", 32, 18, {}, decode_q4_0, codes_q4_0, 4},
    {3, "Q4_1", 32, 20, {}, decode_q4_1, nullptr, 4},
    {6, "Q5_0", 32, 22, {}, decode_q5_0, codes_q5_0, 8},
    {7, "Q5_1", 32, 24, {}, decode_q5_1, nullptr, 5},
    {8, "Q8_0", 32, 34, {}, decode_q8_0, codes_q8_0, 8},
    {10, "Q2_K", 256, 84, {}, decode_q2_k, nullptr, 8},
    {11, "Q3_K", 256, 110, {}, decode_q3_k, codes_q3_k, 8},
    {12, "Q4_K", 256, 144, {}, decode_q4_k, nullptr, 4, super_q4_k},
    {13, "Q5_K", 256, 176, {}, decode_q5_k, nullptr, 5, super_q5_k},
    {14, "Q6_K", 256, 210, {}, decode_q6_k, nullptr, 6, super_q6_k},
    {20, "IQ4_NL", 32, 18, {}, decode_iq4_nl, codes_iq4_nl, 8},
    {23, "IQ4_XS", 256, 136, {}, decode_iq4_xs, nullptr, 8},
    {39, "MXFP4", 32, 17, {}, decode_mxfp4, codes_mxfp4, 8},
    // These types have no weights; they are listed so that files with such tensors can be opened.
    {.id = 24, .name = "I8", .bytes = 1},
    {.id = 25, .name = "I16", .bytes = 2},
    {.id = 26, .name = "I32", .bytes = 4},
    {.id = 27, .name = "I64", .bytes = 8},
    {.id = 28, .name = "F64", .bytes = 8},
}};

struct RefusedType {
  std::uint32_t first, last;
  std::string_view why;
};
constexpr std::array<RefusedType, 13> kRefused = {{
    {4, 5, "was removed from the format (Q4_2, Q4_3); get a newer file"},
    {9, 9, "(Q8_1) holds activations, no weights"},
    {15, 15, "(Q8_K) holds activations, no weights"},
    {16, 18, "(IQ2_XXS, IQ2_XS, IQ3_XXS) is not read; get a file of 4 bits or more"},
    {19, 19, "(IQ1_S) is not read; get a file of 4 bits or more"},
    {21, 22, "(IQ3_S, IQ2_S) is not read; get a file of 4 bits or more"},
    {29, 29, "(IQ1_M) is not read; get a file of 4 bits or more"},
    {31, 33, "(Q4_0 repacked for ARM) was removed from the format; get the Q4_0 file"},
    {34, 35, "(TQ1_0, TQ2_0) is not read"},
    {36, 38, "(IQ4_NL repacked) was removed from the format; get the IQ4_NL file"},
    {40, 41, "(NVFP4, Q1_0) is not read"},
    {97, 199, "is one of ik_llama.cpp, which is not read; get a file of llama.cpp"},
    {200, 400, "is a repacked one of ik_llama.cpp, which is not read; get a file of llama.cpp"},
}};

}  // namespace

const GgufType& require_gguf_type(std::uint32_t id, std::string_view where) {
  const auto known =
      std::ranges::find_if(kTypes, [&](const GgufType& type) { return type.id == id; });
  if (known != kTypes.end() && !known->name.empty()) return *known;
  const auto refused = std::ranges::find_if(
      kRefused, [&](const RefusedType& type) { return type.first <= id && id <= type.last; });
  require(refused == kRefused.end(), where, ": tensor type ", id, " ",
          refused == kRefused.end() ? "" : refused->why);
  fail(where, ": tensor type ", id, " is not known");
}

std::span<const GgufType> gguf_types() {
  const auto end = std::ranges::find_if(
      kTypes, [](const GgufType& type) { return !type.floats && type.decode == nullptr; });
  return {kTypes.begin(), end};
}

std::optional<QuantScheme> kept_scheme(const GgufType& type) {
  if (type.floats) {
    const bool whole = *type.floats == DType::f32;
    return QuantScheme{whole                        ? CodeKind::f32
                       : *type.floats == DType::f16 ? CodeKind::f16
                                                    : CodeKind::bf16,
                       whole ? 32 : 16, Scaling::none, 0};
  }
  if (type.code_bits == 0) return std::nullopt;
  const CodeKind kind = type.code_bits == 8     ? CodeKind::uint_
                        : type.codes != nullptr ? CodeKind::int_
                        : type.code_bits == 4   ? CodeKind::q4_k
                        : type.code_bits == 5   ? CodeKind::q5_k
                                                : CodeKind::q6_k;
  return QuantScheme{kind, type.code_bits, Scaling::group, kGgufGroup};
}

}  // namespace leq
