// Quantizes a checkpoint with the bit widths that a search finds: candidates at 2, 3, 4 and 8 bits,
// the search over them, and the file of the chosen plan.
#pragma once

#include <filesystem>
#include <functional>

#include "convert/quantize_checkpoint.h"
#include "eval/mixed_search.h"

namespace leq {

struct SearchedBits {
  // Candidates, base and (where none is named) log are set by quantize_by_search.
  MixedSearch search;
  std::int64_t group = 128;  // columns that share a scale below 8 bits
};

// Throws Error where no plan can meet the target of `bits`, or its log cannot be read or written:
// checks that need no computation; quantize_by_search calls it.
void check_search(const ImportedModel& model, const CheckpointOptions& checkpoint,
                  const SearchedBits& bits);

// Quantizes with `checkpoint` at int8 and at 4, 3 and 2 bits, keeps the candidate files in
// OUTPUT.search while it runs, and writes `output`; `base` is the unquantized model. With
// checkpoint.resume, reuses the files that an interrupted run left there. `progress` as in
// quantize_checkpoint, over all files.
MixedSearchResult quantize_by_search(
    const ImportedModel& model, const std::filesystem::path& output,
    const CheckpointOptions& checkpoint, const SearchedBits& bits,
    const std::filesystem::path& base,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
