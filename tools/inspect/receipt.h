// Verifies a receipt by generating its reply again.
#pragma once

#include <filesystem>
#include <string>

#include "tools/common/options.h"

namespace leq {

// Returns a message where the reply is the same. Throws Error naming the receipt where it is
// damaged or of another model, and, with both tokens, where the reply differs.
std::string check_receipt_file(const std::filesystem::path& receipt,
                               const std::filesystem::path& model, const Options& options);

}  // namespace leq
