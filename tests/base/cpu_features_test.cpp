// LEQ_ISA restricts the instruction set; if that is impossible, the error lists the available ones.
#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.h"

namespace leq {
namespace {

// Sets LEQ_ISA for one test and restores its former value.
class IsaVariable {
 public:
  IsaVariable() {
    if (const char* value = std::getenv("LEQ_ISA")) before_ = value;
  }
  ~IsaVariable() {
    if (before_) {
      ::setenv("LEQ_ISA", before_->c_str(), 1);
    } else {
      ::unsetenv("LEQ_ISA");
    }
  }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;
  static void set(const std::string& value) { ::setenv("LEQ_ISA", value.c_str(), 1); }

 private:
  std::optional<std::string> before_;
};

TEST(CpuFeatures, PortableIsAlwaysThereAndLevelsAscend) {
  const auto isas = supported_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::portable);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
}

TEST(CpuFeatures, TheVariableChoosesAnySupportedLevel) {
  const IsaVariable variable;
  for (const Isa isa : supported_isas()) {
    IsaVariable::set(std::string(isa_name(isa)));
    EXPECT_EQ(chosen_isa(), isa);
  }
  // The best level, except that avx512 is used only on request.
  auto isas = supported_isas();
  std::erase(isas, Isa::avx512);
  IsaVariable::set("");
  EXPECT_EQ(chosen_isa(), isas.back());
  ::unsetenv("LEQ_ISA");
  EXPECT_EQ(chosen_isa(), isas.back());
}

TEST(CpuFeatures, AnUnknownLevelIsAnErrorThatListsTheKnownOnes) {
  const IsaVariable variable;
  for (const char* bad : {"avx", "AVX2", "avx2 ", "fastest"}) {
    IsaVariable::set(bad);
    try {
      chosen_isa();
      FAIL() << bad;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(bad), std::string::npos);
      for (const Isa isa : supported_isas()) {
        EXPECT_NE(message.find(isa_name(isa)), std::string::npos) << message;
      }
    }
  }
}

}  // namespace
}  // namespace leq
