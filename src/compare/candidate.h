// A candidate: a way to quantize a model, written as METHOD[:TYPE][+ACT][#WINDOWS][@CACHE].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kv_types.h"
#include "convert/quantize_checkpoint.h"

namespace leq {

inline constexpr std::string_view kBaseMethod = "base";  // the unquantized checkpoint

struct Candidate {
  std::string spec;    // the text: "smoothquant:int8+online", "gptq:int4-g128#16", "base@simq8"
  std::string method;  // one of checkpoint_methods(), a recipe, or "base"
  std::string type;    // empty: the method's default
  ActChoice act = ActChoice::automatic;
  std::optional<std::int64_t> windows;  // windows of calibration text; overrides the job's
  KvType cache = kExactKv;              // KV cache type in measurements

  bool is_base() const { return method == kBaseMethod; }
  bool searches() const;  // whether it is a recipe that searches for bit widths
};

// "simquant", "simquant:4" and "simquant:2" are base@simq8, base@simq4 and base@simq2: SimQuant
// quantizes the KV cache only. Throws Error naming the text and the known values.
Candidate parse_candidate(std::string_view spec);

// The distinct candidates of a comma-separated list, without the base, which is always measured.
std::vector<Candidate> parse_candidates(std::string_view list);

// The paper's methods and leq's recipes; a subset for a quick comparison.
std::string default_candidates(bool quick);

// The options with which leq-quantize creates the candidate's file. Throws Error if method and type
// are incompatible.
CheckpointOptions candidate_options(const Candidate& candidate, const ModelConfig& config,
                                    const CalibrationRequest& calibration);

}  // namespace leq
