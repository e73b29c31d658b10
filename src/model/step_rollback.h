// Undoes a step that throws: restores its sequences and moving scales.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/kv_types.h"
#include "cache/sequence_state.h"
#include "model/workspace.h"

namespace leq {

// Calls `work`, which appends to sequences and records each in `runs` afterwards. If `work` throws,
// restores these sequences and the moving scales of `online`, then rethrows.
void undo_on_error(const SequenceState& state, const std::vector<SequenceRun>& runs,
                   std::span<OnlineInput> online, const std::function<void()>& work);

}  // namespace leq
