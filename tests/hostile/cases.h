// Numbered cases; each is a complete command with damaged files or words, and its allowed results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "hostile/child.h"
#include "hostile/judge.h"
#include "hostile/samples.h"

namespace leq::hostile {

struct Case {
  std::string name;  // for human readers: "config.json value -1 at /hidden_size"
  std::string kind;  // for the list of known failures: "config.json/value"
  std::string tool;  // "leq-quantize"
  Command command;
  Expectation expectation;
};

// The settings that all cases share.
struct CasePlan {
  Tools tools;
  std::filesystem::path samples;  // created by make_samples
  std::uint64_t seed = 1;
  std::string kind = {};  // of the damaged file ("gguf"); empty: any
};

// Creates the files of case `number` in `folder` (which must be empty) and returns the command to
// run there. The same seed and number always give the same case.
Case make_case(const CasePlan& plan, std::uint64_t number, const std::filesystem::path& folder);

// One of this many cases runs leq-server, which gets SIGTERM once it listens.
inline constexpr std::uint64_t kServerEach = 16;

// Selects cases that only have command lines, without a damaged file.
enum class Program : std::uint8_t { tools, server };
Case make_words_case(const CasePlan& plan, std::uint64_t number,
                     const std::filesystem::path& folder, Program program);

}  // namespace leq::hostile
