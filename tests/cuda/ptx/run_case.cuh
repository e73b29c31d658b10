// Runs the kernels of ptx_conformance on random words; each thread reads eight words and writes
// eight.
#pragma once

#include <random>

#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/intrinsics/run.h"
#include "tests/cuda/ptx/cases.h"

namespace leq::LEQ_GPU {

using Word = std::uint32_t;
inline constexpr unsigned kThreads = 128, kBlocks = 64;
// A kernel reads `in` [threads][kIn] and writes `out` [threads][kOut].
inline constexpr unsigned kIn = 8, kOut = 8;
using Kernel = void (*)(const Word* in, Word* out);

__device__ inline unsigned thread() { return blockIdx.x * kThreads + threadIdx.x; }

// Returns two integers from -64 to 63 in f16 or bf16, whose products are added without rounding.
__device__ inline Word integers(Word word) {
  const auto integer = [](Word bits) { return static_cast<float>(bits & 127u) - 64.0f; };
  return ptx::f16x2_of(integer(word), integer(word >> 16));
}
__device__ inline Word brain_integers(Word word) {
  const auto integer = [](Word bits) { return static_cast<float>(bits & 127u) - 64.0f; };
  return ptx::bf16x2_of(integer(word), integer(word >> 16));
}

// All NaNs become one, because hardware does not guarantee a NaN's payload.
__device__ inline Word bits_of(float x) { return x != x ? 0x7fc00000u : __float_as_uint(x); }

inline rt::Stream& case_stream() {
  static const rt::StreamOwner stream = rt::make_stream(0);
  return *stream;
}

// Device memory for the input words of a seed and the output words, which are initially zero.
class CaseMemory {
 public:
  static constexpr std::size_t kInWords = std::size_t{kBlocks} * kThreads * kIn;
  static constexpr std::size_t kOutWords = std::size_t{kBlocks} * kThreads * kOut;

  explicit CaseMemory(unsigned seed)
      : words_(kInWords),
        in_(static_cast<Word*>(rt::allocate(0, kInWords * sizeof(Word)))),
        out_(static_cast<Word*>(rt::allocate(0, kOutWords * sizeof(Word)))) {
    std::mt19937 random(seed);
    for (Word& word : words_) word = static_cast<Word>(random());
    rt::copy_to_device(in_, words_.data(), kInWords * sizeof(Word), case_stream());
    rt::fill_zero(out_, kOutWords * sizeof(Word), case_stream());
  }
  ~CaseMemory() {
    rt::release(0, in_);
    rt::release(0, out_);
  }
  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  const Word* in() const { return in_; }
  Word* out() const { return out_; }
  std::vector<Word> result() const {
    std::vector<Word> words(kOutWords);
    rt::copy_to_host(words.data(), out_, kOutWords * sizeof(Word), case_stream());
    rt::synchronize(case_stream());
    return words;
  }

 private:
  std::vector<Word> words_;
  Word* in_;
  Word* out_;
};

template <Kernel kernel>
std::vector<Word> run(unsigned seed) {
  const CaseMemory memory(seed);
  rt::run(case_stream(), {"ptx_conformance", dim3(kBlocks), dim3(kThreads), 0}, kernel, memory.in(),
          memory.out());
  return memory.result();
}

// The cases in ptx_cases() for ptx_attention.h, and those for hopper.h and wgmma.h.
std::vector<PtxCase> attention_cases();
std::vector<PtxCase> hopper_cases();

}  // namespace leq::LEQ_GPU
