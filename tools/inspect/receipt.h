// Verifies a receipt by generating its reply again.
#pragma once

#include <filesystem>
#include <string>

#include "tools/common/options.h"

namespace leq {

// Returns a message if the reply is the same. Throws Error naming the receipt if it is damaged or
// belongs to another model. If the reply differs, the error has both tokens.
std::string check_receipt_file(const std::filesystem::path& receipt,
                               const std::filesystem::path& model, const Options& options);

}  // namespace leq
