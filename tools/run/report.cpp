#include "tools/run/report.h"

#include <algorithm>

#include "base/text.h"
#include "tools/common/model_name.h"
#include "tools/common/setting_flags.h"

namespace leq::run {
namespace {

std::string speed(std::int64_t tokens, double seconds) {
  if (tokens == 0 || seconds <= 0) return "";
  return ", " + fixed(static_cast<double>(tokens) / seconds, 1) + " tokens/s";
}

std::string counted(std::int64_t tokens) {
  return with_commas(tokens) + (tokens == 1 ? " token" : " tokens");
}

}  // namespace

std::string model_line(const Model& model) {
  const std::string gguf = converted_from(model.file().name());
  return (gguf.empty() ? model.file().name() : gguf) + ": " + printable(model.config().family) +
         ", " + fixed(static_cast<double>(model.parameters()) / 1e6, 1) + " M parameters, " +
         printable(model.type()) + ", " + fixed(model.bits_per_weight(), 2) + " bits per weight";
}

std::vector<std::string> online_lines(Session& session) {
  const auto online = session.transformer().online();
  if (online.empty()) return {};
  OnlineCounters all;
  std::vector<std::string> lines(1);
  for (const OnlineInput& input : online) {
    const OnlineCounters& counters = input.scale.counters();
    all.steps = std::max(all.steps, counters.steps);
    all.resets += counters.resets;
    all.values += counters.values;
    all.clipped += counters.clipped;
    if (!counters.dynamic) continue;
    lines.push_back(input.linear->name + ": one scale per token since step " +
                    with_commas(static_cast<std::int64_t>(counters.steps)) +
                    ", its inputs changed too often; quantize it with --act row");
  }
  lines[0] = "online scales: " + std::to_string(online.size()) + " linears, " +
             with_commas(static_cast<std::int64_t>(all.steps)) + " steps, " +
             with_commas(static_cast<std::int64_t>(all.resets)) + " resets, " +
             fixed(100 * all.clipped_share(), 4) + " % clipped";
  return lines;
}

std::vector<std::string> step_lines(const Backend& backend) {
  const StepCounts counts = backend.step_counts();
  if (counts.recorded == 0) return {};
  return {"steps: " + with_commas(counts.recorded) + " recorded as graphs, " +
          with_commas(counts.replayed) + " replayed"};
}

std::vector<std::string> unrecorded_lines(const Backend& backend) {
  const std::string failure = backend.step_counts().failure;
  if (failure.empty()) return {};
  return {
      "steps could not be recorded as graphs and were launched kernel by kernel, which is "
      "slower (the text is the same): " +
      failure};
}

std::vector<std::string> ahead_lines(const EngineCounts& counts) {
  if (counts.steps_ahead == 0) return {};
  return {"one step ahead: " + with_commas(counts.steps_ahead) + " of " +
          with_commas(counts.steps) + " steps were begun before the token that they feed was here"};
}

std::vector<std::string> draft_lines(const EngineCounts& counts) {
  if (counts.draft_tokens == 0) return {};
  const std::string drafted =
      counts.drafted_tokens == 0 ? ""
                                 : ", " + with_commas(counts.right_drafts) + " of " +
                                       with_commas(counts.drafted_tokens) + " of the draft model's";
  return {"draft tokens: " + with_commas(counts.accepted_tokens) + " of " +
          with_commas(counts.draft_tokens) + " accepted" + drafted + "; " +
          with_commas(counts.reply_tokens) + " tokens in " + with_commas(counts.steps) + " steps"};
}

std::string draft_error_line(const Error& error) {
  return "the draft model failed and is no longer used (the text is the same): " +
         with_flags(error.marked());
}

std::string context_advice(const Generator& generator) {
  return generator.context() < generator.longest_context() ? "; a larger -c holds more" : "";
}

void RunTotals::add(const FinishedReply& reply) {
  last_ = reply;
  fed_ += reply.fed_tokens;
  cached_ += reply.cached_tokens;
  written_ += static_cast<std::int64_t>(reply.tokens.size());
  decoded_ += reply.decoded_tokens;
  prompt_seconds_ += reply.prompt_seconds;
  reply_seconds_ += reply.reply_seconds;
}

std::string RunTotals::line() const {
  const std::string cached =
      cached_ > 0 ? " (" + with_commas(cached_) + " more from the cache)" : "";
  return "prompt " + counted(fed_) + cached + speed(fed_, prompt_seconds_) + "; reply " +
         counted(written_) + speed(decoded_, reply_seconds_);
}

}  // namespace leq::run
