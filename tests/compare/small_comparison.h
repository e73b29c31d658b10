// A comparison of the storyteller, small enough for a test.
#pragma once

#include <string>

#include "compare/compare.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq::test {

inline CompareJob small_job(const std::filesystem::path& output) {
  const std::filesystem::path model = *shared_path("models/storyteller");
  CompareJob job;
  job.checkpoint = model;
  job.output = output;
  job.text = std::filesystem::path(LEQ_SOURCE_DIR) / "examples/storyteller/heldout.txt";
  job.choices = {std::filesystem::path(LEQ_SOURCE_DIR) / "examples/storyteller/choices.jsonl"};
  job.candidates = parse_candidates("absmax:int8,absmax:int4-g128,simquant:4");
  job.protocol.window = 48;
  job.protocol.chunks = 4;
  job.protocol.join = "none";
  job.calibration.samples = 2;
  job.calibration.length = 64;
  job.sizes.layer_windows = 2;
  job.sizes.layer_tokens = 32;
  job.sizes.bench_runs = 1;
  job.sizes.prompt = 32;
  job.sizes.generated = 4;
  job.sizes.calibration_windows = {1, 2};
  job.sizes.contexts = {32, 64};
  job.sizes.context_tokens = 128;
  job.sizes.sequences = {1, 2};
  job.sizes.questions = 4;
  job.threads = 2;
  return job;
}

}  // namespace leq::test
