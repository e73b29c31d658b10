#include "base/given_bytes.h"

#include "base/text.h"

namespace leq {

std::string given_bytes(std::uint64_t bytes) {
  struct Unit {
    char letter;
    std::uint64_t bytes;
  };
  for (const Unit unit : {Unit{'G', 1ull << 30}, Unit{'M', 1ull << 20}, Unit{'k', 1ull << 10}}) {
    const std::uint64_t rest = bytes % unit.bytes * 100;
    if (bytes < unit.bytes || bytes >= 10000 * unit.bytes || rest % unit.bytes != 0) continue;
    std::string typed = fixed(static_cast<double>(bytes) / static_cast<double>(unit.bytes), 2);
    while (typed.ends_with('0')) typed.pop_back();
    if (typed.ends_with('.')) typed.pop_back();
    return typed + unit.letter + " (" + human_bytes(bytes) + ")";
  }
  return human_bytes(bytes);
}

}  // namespace leq
