#include "recipes/quantize_by_search.h"

#include "base/error.h"
#include "base/json.h"
#include "quantize/pipeline/partial_run.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

CheckpointOptions candidate_options(const CheckpointOptions& checkpoint, std::size_t choice,
                                    std::int64_t group) {
  CheckpointOptions candidate = checkpoint;
  candidate.type = "int" + std::to_string(kSearchBits[choice]);
  if (choice != kEightBits) candidate.type += "-g" + std::to_string(group);
  return candidate;
}

}  // namespace

MixedSearchResult quantize_by_search(
    const ImportedModel& model, const fs::path& output, const CheckpointOptions& checkpoint,
    const SearchedBits& bits, const fs::path& base,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  Json identity = Json::array();
  for (std::size_t c = 0; c < kChoices; ++c) {
    identity.push_back(parse_json(
        checkpoint_identity(model, candidate_options(checkpoint, c, bits.group)), "identity"));
  }
  const fs::path work = output.string() + ".search";
  PartialRun kept(work, identity.dump(), checkpoint.resume);
  MixedSearch request = bits.search;
  request.base = base;
  request.base_file = work / "base.kl";
  for (std::size_t c = 0; c < kChoices; ++c) {
    const CheckpointOptions candidate = candidate_options(checkpoint, c, bits.group);
    request.candidates[c] = work / (candidate.type + ".leq");
    // A finished file is used again where the run is resumed.
    if (checkpoint.resume && fs::exists(request.candidates[c])) continue;
    quantize_imported(model, request.candidates[c], candidate,
                      [&](std::int64_t done, std::int64_t total) {
                        progress(static_cast<std::int64_t>(c) * total + done, kChoices * total);
                      });
  }
  if (request.options.log.empty()) request.options.log = work / "log.json";
  request.options.progress = [&](int done, double best) {
    require(!checkpoint.stop(), ErrorKind::interrupted, "interrupted; go on with ",
            Setting{"resume"});
    if (bits.search.options.progress) bits.search.options.progress(done, best);
  };
  MixedSearchResult result = search_mixed_model(request, output);
  kept.remove();
  return result;
}

}  // namespace leq
