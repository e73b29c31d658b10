// Receipts of replies (engine/receipt.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capi/live_session.h"
#include "capi/settings.h"
#include "engine/engine.h"

namespace leq::capi {

// Throws Error if the model's replies are not reproducible.
void require_receipts(LiveSession& session);
// A receipt as JSON in the format of leq-run. `digests`: hashes of the reply's logits.
std::string receipt_of(LiveSession& session, const DrawSettings& settings,
                       std::span<const Token> prompt, const EngineReply& reply,
                       const std::vector<std::uint64_t>& digests);

}  // namespace leq::capi
