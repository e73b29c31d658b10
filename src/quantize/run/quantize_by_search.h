// Quantizes a checkpoint with bit widths that a search finds. Writes candidates at 2, 3, 4 and 8
// bits, runs the search with them, and writes the file of the chosen plan.
#pragma once

#include <filesystem>
#include <functional>

#include "quantize/run/quantize_checkpoint.h"
#include "eval/mixed_search.h"

namespace leq {

struct SearchedBits {
  // quantize_by_search sets the candidates, the base and (if it is not set) the log.
  MixedSearch search;
  std::int64_t group = 128;  // columns that share a scale below 8 bits
};

// Throws Error if no plan can meet the target of `bits`, or its log cannot be read or written.
// These checks need no computation; quantize_by_search calls this function.
void check_search(const ImportedModel& model, const CheckpointOptions& checkpoint,
                  const SearchedBits& bits);

// Quantizes with `checkpoint` at int8 and at 4, 3 and 2 bits; these candidate files are in
// OUTPUT.search while it runs. Then writes `output`. `base` is the unquantized model. With
// checkpoint.resume, uses files that an interrupted run has left there. `progress` is as in
// quantize_checkpoint, over all files.
MixedSearchResult quantize_by_search(
    const ImportedModel& model, const std::filesystem::path& output,
    const CheckpointOptions& checkpoint, const SearchedBits& bits,
    const std::filesystem::path& base,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
