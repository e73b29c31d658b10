// Reports of leq-run on standard error, in addition to its plan (tools/common/model_setup.h): the
// model, and counts and speeds at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "model/open_model.h"
#include "model/session.h"

namespace leq::run {

// Returns "storyteller.leq: llama, 5.5 M parameters, int8, 8.01 bits per weight".
std::string model_line(const Model& model);

// Returns statistics of the moving scales of act online: a summary, and a line for each linear that
// fell back to one scale per token. Empty if no linear has act online.
std::vector<std::string> online_lines(Session& session);

// Returns statistics of recorded steps on a device; empty if the device records none.
std::vector<std::string> step_lines(const Backend& backend);
// Returns one line if the device could not record steps as expected, otherwise none.
std::vector<std::string> unrecorded_lines(const Backend& backend);

// Returns the count of steps submitted ahead of the host; empty if there were none.
std::vector<std::string> ahead_lines(const EngineCounts& counts);

// Returns counts of draft tokens; empty if there were none.
std::vector<std::string> draft_lines(const EngineCounts& counts);

// Returns the message about a draft model that failed.
std::string draft_error_line(const Error& error);

// Returns "; a larger -c holds more" unless the model can have no longer context.
std::string context_advice(const Generator& generator);

// Accumulates the speeds of all replies of a run.
class RunTotals {
 public:
  void add(const FinishedReply& reply);
  bool empty() const { return fed_ + cached_ + written_ == 0; }
  // Returns "prompt 24 tokens, 1234.5 tokens/s; reply 96 tokens, 234.5 tokens/s".
  std::string line() const;
  const FinishedReply& last() const { return last_; }

 private:
  FinishedReply last_;
  std::int64_t fed_ = 0, cached_ = 0, written_ = 0, decoded_ = 0;
  double prompt_seconds_ = 0, reply_seconds_ = 0;
};

}  // namespace leq::run
