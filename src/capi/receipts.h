// Receipts of replies (engine/receipt.h), and whom stored keys and values belong to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capi/live_session.h"
#include "capi/settings.h"
#include "engine/engine.h"
#include "engine/prompt_file.h"

namespace leq::capi {

PromptOwner owner_of(LiveSession& session);

// Throws Error where the model's replies cannot be generated again.
void require_receipts(LiveSession& session);
// JSON, as leq-run writes it. `digests`: of the reply's logits.
std::string receipt_of(LiveSession& session, const DrawSettings& settings,
                       std::span<const Token> prompt, const EngineReply& reply,
                       const std::vector<std::uint64_t>& digests);

}  // namespace leq::capi
