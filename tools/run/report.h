// What leq-run says about a run on standard error beside its plan (tools/common/plan_lines.h): the
// model, and counts and speeds at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "model/open_model.h"
#include "model/session.h"

namespace leq::run {

// "storyteller.leq: llama, 5.5 M parameters, int8, 8.01 bits per weight"
std::string model_line(const Model& model);

// What the moving scales of act online did: a summary, and a line for each linear that went back to
// one scale per token. Nothing where no linear has act online.
std::vector<std::string> online_lines(Session& session);

// What a device did with the steps of generation; empty where it records none.
std::vector<std::string> step_lines(const Backend& backend);
// One where the device could not record steps as it should, else none.
std::vector<std::string> unrecorded_lines(const Backend& backend);

// Steps that a device began before the host had the token that they feed; empty where none was.
std::vector<std::string> ahead_lines(const EngineCounts& counts);

// How many tokens were drafted; empty where none was.
std::vector<std::string> draft_lines(const EngineCounts& counts);

// For a draft model that failed.
std::string draft_error_line(const Error& error);

// Speeds over all replies of a run.
class RunTotals {
 public:
  void add(const FinishedReply& reply);
  // "prompt 24 tokens, 1234.5 tokens/s; reply 96 tokens, 234.5 tokens/s"
  std::string line() const;

 private:
  std::int64_t fed_ = 0, cached_ = 0, written_ = 0, decoded_ = 0;
  double prompt_seconds_ = 0, reply_seconds_ = 0;
};

}  // namespace leq::run
