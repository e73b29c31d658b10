#include "cache/sequence_state.h"

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace leq {
namespace {

// Rejects NaN in a state, which would spread to every later token.
void require_finite(std::span<const std::byte> state, std::string_view source) {
  for (std::size_t at = 0; at + sizeof(float) <= state.size(); at += sizeof(float)) {
    float number;
    std::memcpy(&number, state.data() + at, sizeof number);
    require(std::isfinite(number), source,
            ": a state with numbers that are not finite; the file "
            "is damaged");
  }
}

}  // namespace

void SequenceState::append(std::int32_t sequence, std::int64_t count) const {
  const std::int64_t before = length(sequence);
  pages_->append(sequence, count);
  if (fixed_ == nullptr) return;
  try {
    fixed_->begin_step(sequence);
  } catch (const Error&) {
    (void)pages_->truncate(sequence, before);
    throw;
  }
}

void SequenceState::commit() const {
  pages_->commit();
  if (fixed_ == nullptr) return;
  for (std::int32_t sequence = 0; sequence < pages_->shape().sequences; ++sequence) {
    fixed_->commit(sequence, length(sequence));
  }
}

void SequenceState::checkpoint(std::int32_t sequence) const {
  if (fixed_ != nullptr) fixed_->checkpoint(sequence);
}

void SequenceState::only_checkpoint(std::int32_t sequence) const {
  if (fixed_ != nullptr) fixed_->drop_checkpoints(sequence);
  checkpoint(sequence);
}

void SequenceState::repeat(std::int32_t sequence, std::int64_t length) const {
  pages_->repeat_pages(sequence, length);
  if (fixed_ != nullptr) fixed_->pretend(sequence, length);
}

std::int64_t SequenceState::restore(std::int32_t sequence, std::int64_t position) const {
  if (fixed_ == nullptr) return pages_->truncate(sequence, position);
  const std::int64_t kept = pages_->truncate(sequence, fixed_->restorable(sequence, position));
  fixed_->restore(sequence, kept);
  return kept;
}

void SequenceState::fork(std::int32_t from, std::int32_t to) const {
  if (from == to) return;
  pages_->fork(from, to);
  if (fixed_ == nullptr) return;
  fixed_->drop(to);
  fixed_->adopt(to, fixed_->state(from), fixed_->position(from));
}

void SequenceState::drop(std::int32_t sequence) const {
  pages_->clear(sequence);
  if (fixed_ != nullptr) fixed_->drop(sequence);
}

void SequenceState::adopt(std::int32_t sequence, const Prefix& prefix) const {
  pages_->adopt(sequence, prefix.pages, prefix.length);
  if (fixed_ != nullptr) fixed_->adopt(sequence, prefix.state, prefix.length);
}

std::vector<std::byte> SequenceState::save(std::int32_t sequence) const {
  std::vector<std::byte> bytes = pages_->save(sequence);
  if (fixed_ == nullptr || length(sequence) == 0) return bytes;
  const std::size_t of_pages = bytes.size();
  bytes.resize(of_pages + fixed_->whole_bytes());
  fixed_->read(fixed_->state(sequence), std::span(bytes).subspan(of_pages));
  return bytes;
}

void SequenceState::load(std::int32_t sequence, std::span<const std::byte> bytes,
                         std::string_view source) const {
  if (fixed_ == nullptr) return pages_->load(sequence, bytes, source);
  const bool is_empty = KvCache::saved_length(bytes, source) == 0;
  const std::size_t state_bytes = is_empty ? 0 : fixed_->whole_bytes();
  require(bytes.size() >= state_bytes, source, ": expected a state of ", state_bytes,
          " bytes at the end, found ", bytes.size(), " bytes in all");
  const std::size_t of_pages = bytes.size() - state_bytes;
  require_finite(bytes.subspan(of_pages), source);
  bool has_pages = false;
  try {
    pages_->load(sequence, bytes.first(of_pages), source);
    has_pages = true;
    const FixedStates::Id state = fixed_->replace(sequence, length(sequence));
    if (state != FixedStates::kZeros) fixed_->write(state, bytes.subspan(of_pages));
  } catch (const Error&) {
    if (has_pages || length(sequence) == 0) drop(sequence);
    throw;
  }
}

void SequenceState::check_state(std::span<const std::byte> bytes, std::string_view source) const {
  const std::size_t expected = fixed_ == nullptr ? 0 : fixed_->whole_bytes();
  require(expected > 0 && bytes.size() == expected, source, ": a state of ", bytes.size(),
          " bytes, this model has ", expected);
  require_finite(bytes, source);
}

bool SequenceState::shorten(std::int32_t sequence, std::int64_t length,
                            std::span<const std::byte> bytes) const {
  const auto pages = pages_->pages(sequence).first(static_cast<std::size_t>(pages_for(length)));
  const bool partial = length % kPageTokens != 0;
  if (pages_->reach(pages, length) != length || fixed_->free_states() == 0) return false;
  if (partial && pages_->free_pages() == 0) return false;
  (void)pages_->truncate(sequence, length);
  if (partial) {  // appending copies a page that is shared
    pages_->append(sequence, 1);
    (void)pages_->truncate(sequence, length);
  }
  fixed_->write(fixed_->replace(sequence, length), bytes);
  return true;
}

}  // namespace leq
