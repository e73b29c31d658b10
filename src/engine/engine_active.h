// State of a request from its submission to its end; internal to the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/stopwatch.h"
#include "chat/reply.h"
#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "engine/speculator.h"

namespace leq {

struct Engine::Active {
  RequestId id = 0;
  EngineRequest request;
  Reply reply;
  Drafts drafts = {};
  std::int32_t sequence = -1;   // sequence of the KV cache; -1: the request waits
  std::int64_t waited = 0;      // number of steps without a sequence
  std::int64_t kept_pages = 0;  // whole pages that the prefix cache holds
  // Ascending prompt positions whose fixed state is kept for later texts (state_marks.h).
  std::vector<std::int64_t> marks = {};
  std::int64_t branch = 0;  // another position to keep: where an earlier text diverged; 0: none
  bool cancelled = false;
  bool one_by_one = false;  // its steps are never launched ahead of the host
  EngineReply report;
  Stopwatch since_submission, since_prompt;

  std::int64_t known() const { return std::ssize(reply.context()); }
  bool running() const { return sequence >= 0; }
  bool is_mark(std::int64_t at) const {
    return (at == branch && at > 0) || std::ranges::binary_search(marks, at);
  }
  std::int64_t next_mark(std::int64_t fed) const {
    const std::int64_t next = leq::next_mark(marks, fed);
    return branch > fed && (next == 0 || branch < next) ? branch : next;
  }
};

}  // namespace leq
