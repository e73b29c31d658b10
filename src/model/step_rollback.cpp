#include "model/step_rollback.h"

namespace leq {
namespace {

// Saves the moving scales that are on the host. Device scales are skipped: reading them would wait.
std::vector<OnlineState> saved(std::span<OnlineInput> online) {
  std::vector<OnlineState> states;
  for (const OnlineInput& input : online) {
    if (input.scale.on_device() == nullptr) states.push_back(input.scale.save());
  }
  return states;
}

}  // namespace

void undo_on_error(const SequenceState& state, const std::vector<SequenceRun>& runs,
                   std::span<OnlineInput> online, const std::function<void()>& work) {
  const std::vector<OnlineState> before = saved(online);
  try {
    work();
  } catch (...) {
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      (void)state.restore(run->sequence, run->first_position);
    }
    for (std::size_t i = 0; before.size() == online.size() && i < before.size(); ++i) {
      online[i].scale.restore(before[i]);
    }
    throw;
  }
}

}  // namespace leq
