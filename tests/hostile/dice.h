// Random choices of a case, which are the same for the same numbers on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace leq::hostile {

class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t number)
      : engine_(seed * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u + 1) {}

  // Returns 0 to count - 1; the distributions of the standard library are not portable.
  std::size_t below(std::size_t count) { return count == 0 ? 0 : engine_() % count; }
  bool chance(double share) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < share; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list.at(below(list.size()));
  }
  std::uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace leq::hostile
