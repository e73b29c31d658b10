#include "compare/candidate.h"

#include <algorithm>

#include "backend/kv_types.h"
#include "base/error.h"
#include "base/text.h"
#include "recipes/recipe.h"

namespace leq {
namespace {

bool is_recipe(std::string_view name) {
  return std::ranges::find(recipes(), name, &Recipe::name) != recipes().end();
}

std::vector<std::string> known_methods() {
  std::vector<std::string> names = {std::string(kBaseMethod), "simquant"};
  for (const CheckpointMethod& method : checkpoint_methods()) names.push_back(method.name);
  for (const Recipe& recipe : recipes()) {
    names.push_back(recipe.name);
  }
  return names;
}

// Removes the last `mark` and all after it from `text`; returns the removed text after `mark`.
std::string cut_after(std::string& text, char mark) {
  const std::size_t at = text.rfind(mark);
  if (at == text.npos) return "";
  std::string rest = text.substr(at + 1);
  text.erase(at);
  return rest;
}

void read_suffixes(std::string& text, Candidate& candidate) {
  const Setting setting{"candidates"};
  if (const std::string cache = cut_after(text, '@'); !cache.empty()) {
    candidate.cache = parse_kv_type(cache, setting);
  }
  if (const std::string windows = cut_after(text, '#'); !windows.empty()) {
    candidate.windows = parse_int(windows);
    require(candidate.windows && *candidate.windows > 0, setting, ": ", printable(candidate.spec),
            ": expected a number of calibration windows after #");
  }
  // A plus at the end belongs to the name: "gptq+" is a method.
  const std::size_t plus = text.rfind('+');
  if (plus == text.npos || plus + 1 == text.size() || text[plus + 1] == ':') return;
  const auto act = parse_act_choice(text.substr(plus + 1));
  require(act.has_value(), setting, ": ", printable(candidate.spec), ": unknown inputs ",
          printable(text.substr(plus + 1)), "; use auto, none, row, g128, g32, tensor or online");
  candidate.act = *act;
  text.erase(plus);
}

void read_simquant(Candidate& candidate) {
  const std::string bits = candidate.type.empty() ? "8" : candidate.type;
  require(bits == "8" || bits == "4" || bits == "2", Setting{"candidates"}, ": ",
          printable(candidate.spec), ": SimQuant has caches of 8, 4 and 2 bits");
  candidate.method = kBaseMethod;
  candidate.type.clear();
  candidate.cache = parse_kv_type("simq" + bits, Setting{"candidates"});
}

}  // namespace

bool Candidate::searches() const { return is_recipe(method) && require_recipe(method).searches; }

Candidate parse_candidate(std::string_view spec) {
  Candidate candidate;
  candidate.spec = std::string(trim(spec));
  std::string text = candidate.spec;
  read_suffixes(text, candidate);
  candidate.type = cut_after(text, ':');
  candidate.method = text;
  const std::vector<std::string> known = known_methods();
  require(std::ranges::find(known, text) != known.end(), Setting{"candidates"}, ": unknown method ",
          printable(text), "; use ", join(known));
  if (text == "simquant") {
    read_simquant(candidate);
  } else if (candidate.is_base() || is_recipe(text)) {
    require(candidate.type.empty(), Setting{"candidates"}, ": ", printable(candidate.spec), ": ",
            text, " has a type of its own");
  } else if (!candidate.type.empty()) {
    const bool floats = require_scheme(candidate.type, candidate.spec).is_float();
    require(!floats || text == "absmax", Setting{"candidates"}, ": ", printable(candidate.spec),
            ": type ", candidate.type, " has no codes to choose; use absmax:", candidate.type);
  }
  return candidate;
}

std::vector<Candidate> parse_candidates(std::string_view list) {
  std::vector<Candidate> candidates;
  for (const std::string_view word : split(list, ",")) {
    if (trim(word).empty()) continue;
    Candidate candidate = parse_candidate(word);
    const bool again =
        std::ranges::find(candidates, candidate.spec, &Candidate::spec) != candidates.end();
    if (!again && candidate.spec != kBaseMethod) candidates.push_back(std::move(candidate));
  }
  require(!candidates.empty(), Setting{"candidates"}, ": expected a method, found none");
  return candidates;
}

std::string default_candidates(bool quick) {
  if (quick) {
    return "absmax:int8,smoothquant:int8,simquant:8,zeroquant,awq,gptq,absmax:int4-g128,q8,q4";
  }
  return "absmax:int8,zeropoint,smoothquant:int8,simquant:8,simquant:4,zeroquant,awq,gptq,gptq+,"
         "absmax:int4-g128,nf4,q8,q4,auto";
}

CheckpointOptions candidate_options(const Candidate& candidate, const ModelConfig& config,
                                    const CalibrationRequest& calibration) {
  CheckpointOptions options;
  options.calibration = calibration;
  if (candidate.windows) options.calibration.samples = *candidate.windows;
  if (is_recipe(candidate.method)) {
    apply_recipe(require_recipe(candidate.method), config, options);
  } else if (!candidate.is_base()) {
    options.method = candidate.method;
    for (const CheckpointMethod& method : checkpoint_methods()) {
      if (method.name == candidate.method) options.type = method.type;
    }
    if (!candidate.type.empty()) options.type = candidate.type;
  }
  if (candidate.act != ActChoice::automatic) options.act = candidate.act;
  return options;
}

}  // namespace leq
