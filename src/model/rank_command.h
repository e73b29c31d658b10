// Commands that the leader of several ranks sends to the others: steps, copies of pages, saving and
// loading of sequences, the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "backend/kv_types.h"
#include "cache/fixed_states.h"
#include "cache/kv_cache.h"
#include "model/decoder.h"

namespace leq {

// One step, with the pages and positions that the leader's KV cache assigned to it.
struct RankStep {
  enum class Wanted : std::uint8_t { logits, hidden } wanted = Wanted::logits;
  Batch batch;                          // its `sequences` are not sent
  std::vector<std::int32_t> positions;  // [T]
  std::vector<SequenceRun> runs;
  std::vector<std::int32_t> copies;                   // [pages] f16 copy of the page; -1: none
  std::vector<FixedStates::StepStates> states = {};   // [runs]; zeros if the model has no states
  std::vector<std::vector<std::int32_t>> pages = {};  // after decoding: the memory of runs[i].pages
};

struct RankEnd {};

using RankCommand = std::variant<RankStep, PageCopy, RankEnd, SequenceTransfer, StateTransfer>;
RankCommand as_rank_command(const KvCommand& command);

std::vector<std::byte> encode(const RankCommand& command);
// Throws Error if the bytes are not a valid command.
RankCommand decode_command(std::span<const std::byte> bytes);

}  // namespace leq
