// What the leader of several ranks tells the others: steps, copies of pages, sequences that
// are saved or loaded, the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "backend/kv_types.h"
#include "cache/fixed_states.h"
#include "cache/kv_cache.h"
#include "model/batch.h"

namespace leq {

// One step, with what the leader's cache made of it.
struct RankStep {
  enum class Wanted : std::uint8_t { logits, hidden } wanted = Wanted::logits;
  Batch batch;                          // without sequences
  std::vector<std::int32_t> positions;  // [T]
  std::vector<SequenceRun> runs;
  std::vector<std::int32_t> copies;                   // [pages] f16 copies, -1 for none
  std::vector<FixedStates::StepStates> states = {};   // [runs]; zeros of models without
  std::vector<std::vector<std::int32_t>> pages = {};  // decoded: what the runs point into
};

struct RankEnd {};

using RankCommand = std::variant<RankStep, PageCopy, RankEnd, SequenceTransfer, StateTransfer>;
RankCommand as_rank_command(const KvCommand& command);

std::vector<std::byte> encode(const RankCommand& command);
// Throws Error where the bytes are no command.
RankCommand decode_command(std::span<const std::byte> bytes);

}  // namespace leq
