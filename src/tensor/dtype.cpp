#include "tensor/dtype.h"

#include <array>

namespace leq {
namespace {

struct Row {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<Row, 7> kTable = {
    {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"i8", 1}, {"u8", 1}, {"i16", 2}, {"i32", 4}}};

}  // namespace

std::string_view dtype_name(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].name; }

std::size_t dtype_bytes(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].bytes; }

}  // namespace leq
