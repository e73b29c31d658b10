// leq-quantize --search: candidates at 2, 3, 4 and 8 bits, the bit search over them, and the file
// of the plan.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convert/quantize_checkpoint.h"
#include "eval/mixed_search.h"
#include "tools/common/options.h"

namespace leq {

std::vector<Option> search_flags();
// Throws Error where one of them is given without a search that it could steer.
void require_no_search_flags(const Options& options);

// What the flags ask for; the candidates, and the log where none is named, are set by
// quantize_by_search, the base by the caller. Throws Error naming flags that do not go together.
MixedSearch search_request(const Options& options, const CheckpointOptions& checkpoint);

// Quantizes the folder with `checkpoint` at int8 and at 4, 3 and 2 bits with groups of `group`
// columns, keeps the files in OUTPUT.search while it works, and writes `output`. With
// checkpoint.resume, what an interrupted run left there is used again. `progress` as
// quantize_checkpoint, over all files.
MixedSearchResult quantize_by_search(
    const std::filesystem::path& folder, const std::filesystem::path& output,
    const CheckpointOptions& checkpoint, MixedSearch request, std::int64_t group,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
