#include "recipes/quantize_by_search.h"

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "eval/mixed_search.h"
#include "model/linear_sites.h"
#include "quantize/pipeline/partial_run.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

CheckpointOptions candidate_options(const CheckpointOptions& checkpoint, std::size_t choice,
                                    std::int64_t group) {
  CheckpointOptions candidate = checkpoint;
  candidate.keep_blocks = false;  // whole candidates are kept
  candidate.type = "int" + std::to_string(kSearchBits[choice]);
  if (choice != kEightBits) candidate.type += "-g" + std::to_string(group);
  return candidate;
}

struct SearchJob {
  const ImportedModel& model;
  const fs::path& output;
  const CheckpointOptions& checkpoint;
  const SearchedBits& bits;
  const fs::path& base;
  const std::function<void(std::int64_t, std::int64_t)>& progress;
};

// Writes the candidates into the folder `work`, then runs the search with them.
MixedSearchResult search_in(const fs::path& work, const SearchJob& job) {
  MixedSearch request = job.bits.search;
  request.base = job.base;
  request.base_file = work / "base.kl";
  for (std::size_t c = 0; c < kChoices; ++c) {
    const CheckpointOptions candidate = candidate_options(job.checkpoint, c, job.bits.group);
    request.candidates[c] = work / (candidate.type + ".leq");
    // An interrupted run, which this run resumes, has already written this file.
    if (file_exists(request.candidates[c])) continue;
    quantize_imported(job.model, request.candidates[c], candidate,
                      [&](std::int64_t done, std::int64_t total) {
                        job.progress(static_cast<std::int64_t>(c) * total + done, kChoices * total);
                      });
  }
  if (request.options.log.empty()) request.options.log = work / "log.json";
  request.options.progress = [&](int done, double best) {
    require(!job.checkpoint.stop(), ErrorKind::interrupted, "interrupted");
    if (job.bits.search.options.progress) job.bits.search.options.progress(done, best);
  };
  return search_mixed_model(request, job.output);
}

}  // namespace

void check_search(const ImportedModel& model, const CheckpointOptions& checkpoint,
                  const SearchedBits& bits) {
  check_search_log(bits.search.options.log);
  const LeastBytes least = least_bytes(model, candidate_options(checkpoint, 0, bits.group));
  const LeastBytes most = least_bytes(model, candidate_options(checkpoint, kEightBits, bits.group));
  const std::uint64_t rest = most.all - most.block_linears;  // int8 in every plan
  const std::uint64_t size = bits.search.target_size;
  require(size == 0 || size >= rest + least.block_linears, Setting{"target_size"}, " ", size,
          ": with the fewest bits the tensors take at least ", rest + least.block_linears,
          " bytes; give more");
  if (const auto& fit = bits.search.fit) {
    const CpuLayout layout(checkpoint.threads);
    const std::uint64_t cache = smallest_cache_bytes(model.config, layout, fit->limits);
    const std::uint64_t weights = rest + least.block_linears;
    require(fit->bytes >= weights + cache, ErrorKind::no_memory, Setting{"fit"}, " ",
            human_bytes(fit->bytes), ": with the fewest bits the tensors take at least ",
            human_bytes(weights), ", the smallest cache of ", with_commas(fit->limits.context),
            " positions ", human_bytes(cache), "; give more memory or a shorter ",
            Setting{"context"});
  }
  const double bpw = bits.search.target_bpw;
  const auto weights = static_cast<double>(block_linear_parameters(model.config));
  require(bpw <= 0 || bpw * weights >= 8 * static_cast<double>(least.block_linears),
          Setting{"target_bpw"}, " ", bpw, ": with its scales a weight takes at least ",
          fixed(8 * static_cast<double>(least.block_linears) / weights, 3), " bits; give more");
}

MixedSearchResult quantize_by_search(
    const ImportedModel& model, const fs::path& output, const CheckpointOptions& checkpoint,
    const SearchedBits& bits, const fs::path& base,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check_search(model, checkpoint, bits);
  Json identity = Json::array();
  for (std::size_t c = 0; c < kChoices; ++c) {
    identity.push_back(parse_json(
        checkpoint_identity(model, candidate_options(checkpoint, c, bits.group)), "identity"));
  }
  const fs::path work = output.string() + ".search";
  PartialRun kept(work, identity.dump(),
                  checkpoint.resume ? UnfinishedRun::resume : UnfinishedRun::replace,
                  checkpoint.say);
  try {
    MixedSearchResult result =
        search_in(kept.folder(), {model, output, checkpoint, bits, base, progress});
    kept.remove();
    return result;
  } catch (const std::exception&) {
    kept.report_kept();
    throw;
  }
}

}  // namespace leq
