// The shared state of a comparison's measurements: the checkpoint, the text split into windows,
// the unquantized model's file and distributions, and a file for each candidate, created on first
// use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/workers.h"
#include "base/file.h"
#include "base/json.h"
#include "compare/compare_job.h"
#include "compare/result_store.h"
#include "convert/imported_model.h"
#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "eval/report.h"
#include "model/open_model.h"
#include "model/session.h"

namespace leq {

// The windows of the text that a measurement uses.
struct CompareWindows {
  ProtocolSettings settings;
  std::vector<Window> windows;
  std::int64_t scored() const;
};

class Workbench {
 public:
  // Throws Error if the checkpoint or the text cannot be read, the text is shorter than a window, a
  // candidate's method does not support its type, or another comparison uses the folder.
  explicit Workbench(const CompareJob& job);

  const CompareJob& job() const { return job_; }
  const ImportedModel& checkpoint() const { return checkpoint_; }
  const ResultStore& store() const { return store_; }
  Workers& workers() { return workers_; }
  const EvaluationText& text() const { return text_; }
  const std::vector<Token>& tokens() const { return tokens_; }
  const CompareWindows& windows() const { return windows_; }
  // The first `count` windows of `tokens` tokens, without overlap, of the joined text.
  CompareWindows short_windows(std::int64_t tokens, std::int64_t count) const;

  CheckpointOptions options_of(const Candidate& candidate) const;
  // Everything that a candidate's file (file_identity) or a result (identity) depends on.
  Json file_identity(const Candidate& candidate) const;
  Json identity(const Candidate& candidate, const std::string& step) const;

  // The candidate's .leq file, which is created if it does not exist. If `made` is given, it is set
  // to the duration, provided the whole file was created by this call.
  struct Made {
    bool now = false;
    double seconds = 0;
  };
  std::filesystem::path file_of(const Candidate& candidate, Made* made = nullptr);
  void remove_file(const Candidate& candidate);
  std::unique_ptr<Model> open(const Candidate& candidate);
  RunLimits limits(const Candidate& candidate, const ModelConfig& config, std::int64_t context,
                   std::int64_t output_tokens) const;
  // A session of the candidate's model and cache type, for windows of `context` positions.
  Session session(const Candidate& candidate, const Model& model, std::int64_t context,
                  std::int64_t output_tokens = kOutputRows);
  std::span<const Token> tokens_of(const Window& window) const;

  // The distributions of the unquantized model on these windows, from a file that the first call
  // writes.
  const DivergenceBaseReader& base_distributions(const CompareWindows& windows);
  DivergenceKey key(const CompareWindows& windows) const;
  PerplexityRun run_over(const CompareWindows& windows) const;
  // Measures perplexity and divergence of a session with the functions of leq-perplexity.
  Divergence measure(Session& session, const CompareWindows& windows);

  void require_not_stopped() const;
  void remove_files();  // the candidates' files and the base's distributions

 private:
  std::filesystem::path checked_folder() const;
  std::filesystem::path path_of(const Candidate& candidate) const;

  const CompareJob& job_;
  Workers workers_;
  ImportedModel checkpoint_;
  std::string checkpoint_hash_;
  Tokenizer tokenizer_;
  EvaluationText text_;
  std::vector<Token> tokens_;
  CompareWindows windows_;
  // Initialized after the request is validated, so that an invalid request leaves no folder behind.
  WorkFolder folder_;  // OUTPUT/work
  ResultStore store_;
  std::map<std::string, std::unique_ptr<DivergenceBaseReader>> bases_;
};

}  // namespace leq
