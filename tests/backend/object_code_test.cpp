// Checks the compiled loops of matmul and attention on x86-64: an accumulator spilled to the stack
// inside a loop costs up to half of the speed, which no other test would detect.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace leq {
namespace {

// Counts, for one function, stack accesses of whole registers between its first and last product
// instruction, including stack operands of the product instructions.
struct Loop {
  std::string function;
  int spills = 0;
};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Calls see(text, begins) for each line of the kernels' disassembly; `begins`: names of functions
// that begin there. Without objdump there are no lines.
template <class See>
void each_line(See see) {
  const std::string command =
      "cd '" LEQ_BINARY_DIR
      "/CMakeFiles' && find leq_kernels.dir leq_numbers.dir -name '*.o' -print0 | "
      "xargs -0 objdump -d -C --no-show-raw-insn 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char line[4096];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    see(std::string(line), contains(line, ">:\n"));
  }
}

// Returns the functions in which `product` matches an instruction; `sums` is the kind of register
// that holds the accumulators.
std::vector<Loop> loops_of(const std::regex& product, const char* sums) {
  std::vector<Loop> loops;
  std::string function;
  bool inside = false;
  int pending = 0;  // since the last product; they count only if another product follows
  each_line([&](const std::string& text, bool begins) {
    const bool on_stack = contains(text, "(%rsp)") || contains(text, "(%rbp)");
    if (begins) {
      function = text;
      inside = false;
    } else if ((contains(text, "vpdpbusd") || contains(text, "tdpb") || contains(text, "vpmadd") ||
                contains(text, "vfmadd")) &&
               std::regex_search(text, product)) {
      if (!inside) loops.push_back({function});
      loops.back().spills += (inside ? pending : 0) + (on_stack ? 1 : 0);
      inside = true;
      pending = 0;
    } else if (inside && on_stack && contains(text, sums)) {
      ++pending;
    }
  });
  return loops;
}

void expect_no_spills(const char* product, const char* function, const char* sums = "zmm") {
  if (std::string_view(LEQ_SANITIZE) != "") GTEST_SKIP() << "sanitizers use the stack";
  const std::vector<Loop> loops = loops_of(std::regex(product), sums);
  if (loops.empty()) GTEST_SKIP() << "no objdump, or no code of this level in this build";
  int checked = 0;
  for (const Loop& loop : loops) {
    if (!std::regex_search(loop.function, std::regex(function))) continue;
    ++checked;
    EXPECT_EQ(loop.spills, 0) << loop.function;
  }
  EXPECT_GT(checked, 0) << "none of " << loops.size() << " functions is " << function;
}

// Tiles of byte codes use up to 24 of 32 registers as accumulators. (Tiles of three tokens with 2-
// and 3-bit codes are excluded, because they need registers for masks in addition to the 24.)
TEST(ObjectCode, KeepsVnniSumsInRegisters) {
  expect_no_spills("vpdpbusd.*zmm", "::(piece_)?tile<|bits_tile<.*Bits., [12],");
}

// Tiles of many tokens on AVX2 use 12 of 16 registers as accumulators and the others for operands.
TEST(ObjectCode, KeepsSumsOfWordsInRegisters) {
  expect_no_spills("vpmaddwd.*ymm", "::k_tile_kernel<.*WordProducts", "ymm");
}

// Attention of many queries on AVX2 also uses 12 of 16 registers as accumulators.
TEST(ObjectCode, KeepsSumsOfAttentionInRegisters) {
  expect_no_spills("vfmadd.*ymm", "::(float_blocks|value_columns)<", "ymm");
}

// With AMX, zmm registers hold values that the CPU combines while the tile unit multiplies.
TEST(ObjectCode, KeepsNumbersBesideTheTilesInRegisters) {
  expect_no_spills("tdpb[su][su]d", "::multiply_k_tile<|::run<[12]>|::run_rows<|add_k_tile<");
}

// Counts calls of functions that only prefetch, because a compiler may drop such calls
// (base/prefetch.h). Prefetching the scales of packed codes made attention 1.2 times as fast.
TEST(ObjectCode, KeepsWhatOnlyPrefetches) {
  const std::regex names("leq::cpu::(\\(anonymous namespace\\)::)?(run_span|prefetch_scales)\\(");
  bool inside = false, calls = false;
  int functions = 0, prefetches = 0;
  each_line([&](const std::string& text, bool begins) {
    if (begins) {
      inside = std::regex_search(text, names);
      functions += inside ? 1 : 0;
    } else if (inside && contains(text, "prefetch_scales(")) {
      calls = true;
      ++prefetches;
    } else if (inside && (contains(text, "\tprefetch") || contains(text, "\tprfm"))) {
      ++prefetches;
    }
  });
  if (functions == 0) GTEST_SKIP() << "no objdump, or none that reads this processor's code";
  // Scales and minima are prefetched; a prefetch_scales that is not inlined must be called, too.
  EXPECT_GE(prefetches, functions == 1 ? 2 : 3);
  EXPECT_EQ(calls, functions > 1);
}

}  // namespace
}  // namespace leq
