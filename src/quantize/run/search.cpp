
#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/linear_sites.h"
#include "quantize/run/blocks.h"
#include "quantize/run/steps.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

// With a recipe, 4 bits are its own types, so that no plan of their size is worse than these.
QuantizeOptions candidate_options(const ModelConfig& config, const QuantizeOptions& options,
                                  std::size_t choice) {
  const std::int64_t usual = config.width < kNarrowWidth ? 64 : 128;
  const std::int64_t group = options.search->group > 0 ? options.search->group : usual;
  std::string type = "int" + std::to_string(kSearchBits[choice]);
  if (choice != kEightBits) type += "-g" + std::to_string(group);
  QuantizeOptions candidate = options;
  if (options.recipe == nullptr) {
    candidate.type = type;
  } else if (choice != kFourBits) {
    candidate.block_type = require_scheme(type, options.recipe->name);
  }
  return candidate;
}

std::string candidate_name(const QuantizeOptions& candidate) {
  return candidate.block_type ? scheme_name(*candidate.block_type) : candidate.type;
}

// Writes the candidates into the folder `work`, then runs the search with them.
MixedSearchResult search_in(const fs::path& work, const ImportedModel& model,
                            const fs::path& output, const QuantizeOptions& options,
                            const fs::path& base) {
  MixedSearch request = options.search->search;
  request.base = base;
  request.base_file = work / "base.kl";
  for (std::size_t c = 0; c < kChoices; ++c) {
    QuantizeOptions candidate = candidate_options(model.config, options, c);
    request.candidates[c] = work / (candidate_name(candidate) + ".leq");
    // An interrupted run, which this run resumes, has already written this file.
    if (file_exists(request.candidates[c])) continue;
    candidate.progress = [&](auto, std::int64_t done, std::int64_t total, const auto&) {
      options.progress("candidates", static_cast<std::int64_t>(c) * total + done, kChoices * total,
                       "");
    };
    quantize_imported(model, request.candidates[c], candidate);
  }
  if (request.options.log.empty()) request.options.log = work / "log.json";
  request.options.progress = [&](int done, double best) {
    require(!options.stop(), ErrorKind::interrupted, "interrupted");
    options.progress("search", done, request.options.evaluations, "best " + fixed(best, 6));
  };
  return search_mixed_model(request, output);
}

}  // namespace

void check_search(const ImportedModel& model, const QuantizeOptions& options) {
  const SearchedBits& bits = *options.search;
  check_search_log(bits.search.options.log);
  const LeastBytes least = least_bytes(model, candidate_options(model.config, options, 0));
  const LeastBytes most = least_bytes(model, candidate_options(model.config, options, kEightBits));
  const std::uint64_t rest = most.all - most.block_linears;  // the same in every plan
  const std::uint64_t size = bits.search.target_size;
  require(size == 0 || size >= rest + least.block_linears, Setting{"target_size"}, " ", size,
          ": with the fewest bits the tensors take at least ", rest + least.block_linears,
          " bytes; give more");
  if (const auto& fit = bits.search.fit) {
    const CpuLayout layout(options.threads);
    const std::uint64_t cache = smallest_cache_bytes(model.config, layout, fit->limits);
    const std::uint64_t weights = rest + least.block_linears;
    require(fit->bytes >= weights + cache, ErrorKind::no_memory, Setting{"fit"}, " ",
            given_bytes(fit->bytes), ": with the fewest bits the tensors take at least ",
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

MixedSearchResult quantize_by_search(const ImportedModel& model, const fs::path& output,
                                     const QuantizeOptions& options, const fs::path& base) {
  check_search(model, options);
  Json identity = Json::array();
  for (std::size_t c = 0; c < kChoices; ++c) {
    identity.push_back(parse_json(
        checkpoint_identity(model, candidate_options(model.config, options, c)), "identity"));
  }
  PartialRun kept(output.string() + ".search", identity.dump(),
                  options.resume ? UnfinishedRun::resume : UnfinishedRun::replace, options.say);
  try {
    MixedSearchResult result = search_in(kept.folder(), model, output, options, base);
    kept.remove();
    return result;
  } catch (const std::exception&) {
    kept.report_kept();
    throw;
  }
}

}  // namespace leq
