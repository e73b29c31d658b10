// Checks that the emulated backend uses only its own kernels for computations.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace {

std::string symbols_of(const std::string& library) {
  std::string text;
  std::FILE* pipe = popen(("nm -C " + library).c_str(), "r");
  char line[4096];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) text += line;
  if (pipe != nullptr) pclose(pipe);
  return text;
}

TEST(EmulatedLibrary, UsesNothingOfTheCpuBackend) {
  const std::string symbols = symbols_of(LEQ_SIM_LIBRARY);
  ASSERT_NE(symbols.find("leq::sim::launch_norm"), std::string::npos) << "no symbols were read";
  EXPECT_EQ(symbols.find("leq::cpu::"), std::string::npos);
  EXPECT_EQ(symbols.find("make_cpu_backend"), std::string::npos);
}

}  // namespace
