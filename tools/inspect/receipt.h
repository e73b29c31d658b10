// Writes a reply again from its receipt and says whether it is the same.
#pragma once

#include <filesystem>
#include <string>

#include "tools/common/options.h"

namespace leq {

// A line for people where it is. Throws Error naming the receipt where it is damaged or tells of
// another model, and, with both tokens, where the reply is another one.
std::string check_receipt_file(const std::filesystem::path& receipt,
                               const std::filesystem::path& model, const Options& options);

}  // namespace leq
