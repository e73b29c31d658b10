// The cases of ptx_conformance on the emulator: every wrapper of an instruction has a case, and a
// case's result does not depend on the order of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "../ptx/cases.h"
#include "cuda/sim/emulator.h"

namespace leq {
namespace {

const std::filesystem::path kSource = LEQ_SOURCE_DIR;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Lists the functions of namespace ptx in ptx.h and similar headers.
std::set<std::string> wrappers() {
  const std::regex function(R"(__device__ __forceinline__ [\w:]+\s+(\w+)\()");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "cuda/intrinsics")) {
    const std::string text = entry.path().extension() == ".h" ? text_of(entry.path()) : "";
    if (text.find("::ptx {") == std::string::npos) continue;
    for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at) {
      names.insert((*at)[1]);
    }
  }
  names.erase("wrong_architecture");  // ends the program
  return names;
}

TEST(PtxCases, ThereIsOneForEveryWrapper) {
  std::string cases;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "tests/cuda/ptx")) {
    if (entry.path().extension() == ".cu") cases += text_of(entry.path());
  }
  const auto names = wrappers();
  EXPECT_TRUE(names.contains("dp4a") && names.contains("wgmma") && names.contains("tensor_load"))
      << "the headers were not read";
  for (const std::string& name : names) {
    EXPECT_TRUE(std::regex_search(cases, std::regex("ptx::" + name + "\\b")))
        << "no kernel in tests/cuda/ptx calls ptx::" << name;
  }
}

class Ptx : public testing::TestWithParam<PtxCase> {
 protected:
  void TearDown() override { simt::schedule() = {}; }
};

TEST_P(Ptx, FindsTheSameInEveryOrder) {
  const auto expected = GetParam().run(1);
  EXPECT_TRUE(std::ranges::any_of(expected, [](std::uint32_t word) { return word != 0; }));
  EXPECT_NE(GetParam().run(2), expected) << "another seed, other numbers";
  for (const simt::Schedule schedule : {simt::Schedule{5, simt::CopyLands::at_wait},
                                        simt::Schedule{9, simt::CopyLands::at_issue}}) {
    simt::schedule() = schedule;
    EXPECT_EQ(GetParam().run(1), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Ptx, testing::ValuesIn(sim::ptx_cases()), [](const auto& item) {
  std::string name = item.param.name;
  name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }),
             name.end());
  return name;
});

}  // namespace
}  // namespace leq
