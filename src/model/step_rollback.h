// Undoes a step that throws: sequences and moving scales become what they were before it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/kv_types.h"
#include "cache/sequence_state.h"
#include "model/workspace.h"

namespace leq {

// Calls `work`, which appends to sequences and notes each in `runs` once it has. Where it throws,
// they and the moving scales of `online` are as before, and the error goes on.
void undo_on_error(const SequenceState& state, const std::vector<SequenceRun>& runs,
                   std::span<OnlineInput> online, const std::function<void()>& work);

}  // namespace leq
