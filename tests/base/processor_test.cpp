// The instruction sets that leq finds, against the flags that Linux prints.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/text.h"

namespace leq {
namespace {

std::vector<std::string> flags_of_linux() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    const std::string words = line.substr(line.find(':') + 1);
    std::vector<std::string> flags;
    for (const auto word : split(words, " ")) flags.emplace_back(word);
    return flags;
  }
  return {};
}

TEST(Processor, InstructionSetsAreThoseThatLinuxPrints) {
  const std::vector<std::string> flags = flags_of_linux();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags";
  const std::map<Isa, std::vector<std::string>> wanted = {
      {Isa::avx2, {"avx2", "fma", "f16c", "bmi2"}},
      {Isa::avxvnni, {"avx2", "fma", "f16c", "bmi2", "avx_vnni"}},
      {Isa::avx512,
       {"avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}},
      {Isa::avx512vnni, {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx512_vnni"}},
      {Isa::neon, {"asimd"}},
      {Isa::dotprod, {"asimddp"}},
      {Isa::i8mm, {"asimddp", "i8mm"}}};
  const std::vector<Isa> found = supported_isas();
  const auto has = [](const auto& list, const auto& one) {
    return std::ranges::find(list, one) != list.end();
  };
  EXPECT_TRUE(has(found, Isa::portable));
  for (const auto& [isa, names] : wanted) {
    const bool all = std::ranges::all_of(names, [&](const auto& name) { return has(flags, name); });
    EXPECT_EQ(has(found, isa), all) << isa_name(isa);
  }
  // The system may refuse AMX to a process whose processor has it.
  if (has(found, Isa::avx512amx)) {
    EXPECT_TRUE(has(flags, std::string("amx_tile")) && has(flags, std::string("amx_int8")));
  }
}

}  // namespace
}  // namespace leq
