// Numbered cases: a whole command with damaged files or words, and what may come of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "hostile/child.h"
#include "hostile/judge.h"
#include "hostile/samples.h"

namespace leq::hostile {

struct Case {
  std::string name;  // "config.json value -1 at /hidden_size", for people
  std::string kind;  // "config.json/value", for the list of known failures
  std::string tool;  // "leq-quantize"
  Command command;
  Expectation expectation;
};

// What all cases have in common.
struct CasePlan {
  Tools tools;
  std::filesystem::path samples;  // of make_samples
  std::uint64_t seed = 1;
  std::string kind = {};  // of the damaged file ("gguf"); any kind of case unless told
};

// Makes the files of case `number` in `folder` (which must be empty) and says what to run there.
// The same for the same seed and number.
Case make_case(const CasePlan& plan, std::uint64_t number, const std::filesystem::path& folder);

// One of so many cases is leq-server's, which is told to end once it listens.
inline constexpr std::uint64_t kServerEach = 16;

// Cases of command lines, without a damaged file.
enum class Program : std::uint8_t { tools, server };
Case make_words_case(const CasePlan& plan, std::uint64_t number,
                     const std::filesystem::path& folder, Program program);

}  // namespace leq::hostile
