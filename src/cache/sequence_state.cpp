#include "cache/sequence_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::string_view kStateSite = "the state of a sequence";

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

FixedStates::FixedStates(DeviceMemory& memory, std::size_t bytes_each, std::int64_t count,
                         int sequences)
    : memory_(memory),
      bytes_each_(bytes_each),
      states_(memory, bytes_each * static_cast<std::size_t>(count)),
      sequences_(static_cast<std::size_t>(sequences)),
      references_(static_cast<std::size_t>(count), 0) {
  for (auto id = static_cast<Id>(count); id-- > 0;) free_.push_back(id);
}

FixedStates::Sequence& FixedStates::at(std::int32_t sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(sequence));
}

const FixedStates::Sequence& FixedStates::at(std::int32_t sequence) const {
  ensure(sequence >= 0 && std::cmp_less(sequence, sequences_.size()), "states: sequence ", sequence,
         ", there are ", sequences_.size());
  return sequences_[static_cast<std::size_t>(sequence)];
}

std::byte* FixedStates::bytes_of(Id state) const {
  if (state == kZeros || bytes_each_ == 0) return nullptr;
  return states_.data() + static_cast<std::size_t>(state) * bytes_each_;
}

void FixedStates::hold(Id state) {
  if (state != kZeros) ++references_[static_cast<std::size_t>(state)];
}

void FixedStates::release(Id state) {
  if (state == kZeros) return;
  std::int32_t& holders = references_[static_cast<std::size_t>(state)];
  ensure(holders > 0, "states: state ", state, " is released and has no holder");
  if (--holders == 0) free_.push_back(state);
}

bool FixedStates::evict_checkpoint() {
  Sequence* owner = nullptr;
  std::size_t oldest = 0;
  for (Sequence& sequence : sequences_) {
    for (std::size_t i = 0; i < sequence.checkpoints.size(); ++i) {
      const bool older =
          owner == nullptr || sequence.checkpoints[i].made < owner->checkpoints[oldest].made;
      if (!older) continue;
      owner = &sequence;
      oldest = i;
    }
  }
  if (owner == nullptr) return false;
  release(owner->checkpoints[oldest].state);
  owner->checkpoints.erase(owner->checkpoints.begin() + static_cast<std::ptrdiff_t>(oldest));
  return true;
}

FixedStates::Id FixedStates::take_free() {
  while (free_.empty() && evict_checkpoint()) {
  }
  require(!free_.empty(), ErrorKind::no_memory, "states: all ", count(),
          " states of sequences are in use");
  const Id state = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(state)] = 1;
  return state;
}

FixedStates::StepStates FixedStates::step_states(std::int32_t sequence) const {
  const Sequence& source = at(sequence);
  ensure(source.next != kZeros, "states: no step of sequence ", sequence, " has begun");
  return {source.state, source.next};
}

void FixedStates::begin_step(std::int32_t sequence) {
  Sequence& target = at(sequence);
  if (target.next == kZeros) target.next = take_free();
}

void FixedStates::commit(std::int32_t sequence, std::int64_t position) {
  Sequence& target = at(sequence);
  if (target.next == kZeros) return;
  release(target.state);
  target.state = std::exchange(target.next, kZeros);
  target.position = position;
}

void FixedStates::checkpoint(std::int32_t sequence) {
  Sequence& target = at(sequence);
  if (target.state == kZeros) return;
  auto& all = target.checkpoints;
  if (!all.empty() && all.back().position == target.position) {
    all.back().made = ++clock_;
    return;
  }
  hold(target.state);
  all.push_back({target.position, target.state, ++clock_});
}

void FixedStates::drop_checkpoints(std::int32_t sequence) {
  for (const Checkpoint& one : at(sequence).checkpoints) release(one.state);
  at(sequence).checkpoints.clear();
}

std::int64_t FixedStates::restorable(std::int32_t sequence, std::int64_t position) const {
  const Sequence& source = at(sequence);
  if (source.position <= position) return source.position;
  std::int64_t found = 0;
  for (const Checkpoint& checkpoint : source.checkpoints) {
    if (checkpoint.position <= position) found = checkpoint.position;
  }
  return found;
}

void FixedStates::restore(std::int32_t sequence, std::int64_t position) {
  Sequence& target = at(sequence);
  ensure(restorable(sequence, position) == position, "states: sequence ", sequence,
         " has no state after ", position, " tokens");
  release(std::exchange(target.next, kZeros));
  auto& all = target.checkpoints;
  while (!all.empty() && all.back().position > position) {
    release(all.back().state);
    all.pop_back();
  }
  if (target.position == position) return;
  const Id found = position == 0 ? kZeros : all.back().state;
  hold(found);
  release(std::exchange(target.state, found));
  target.position = position;
}

void FixedStates::adopt(std::int32_t sequence, Id state, std::int64_t position) {
  Sequence& target = at(sequence);
  ensure(target.position == 0 && target.next == kZeros, "states: sequence ", sequence, " after ",
         target.position, " tokens cannot begin with a state");
  hold(state);
  target.state = state;
  target.position = position;
}

void FixedStates::drop(std::int32_t sequence) { restore(sequence, 0); }

FixedStates::Id FixedStates::replace(std::int32_t sequence, std::int64_t position) {
  drop(sequence);
  if (position > 0) begin_step(sequence);
  commit(sequence, position);
  return state(sequence);
}

std::size_t FixedStates::whole_bytes() const {
  if (!leading_) return bytes_each_;
  const std::vector<std::size_t>& bytes = leading_->among.bytes;
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

void FixedStates::read(Id state, std::span<std::byte> out) const {
  if (!leading_) return memory_.read(bytes_of(state), out);
  leading_->send({StateTransfer::Kind::read, state});
  together(leading_->among.ranks, [&] { give(state, leading_->among, out); });
}

void FixedStates::write(Id state, std::span<const std::byte> in) {
  if (!leading_) return memory_.write(bytes_of(state), in);
  leading_->send({StateTransfer::Kind::write, state});
  together(leading_->among.ranks, [&] { take(state, leading_->among, in); });
}

void FixedStates::give(Id state, const StateRanks& among, std::span<std::byte> whole) const {
  std::vector<std::byte> own(bytes_each_);
  if (!own.empty()) memory_.read(bytes_of(state), own);
  gather_to_leader(among.ranks, among.bytes, own, whole, kStateSite);
}

void FixedStates::take(Id state, const StateRanks& among, std::span<const std::byte> whole) {
  std::vector<std::byte> own(bytes_each_);
  scatter_from_leader(among.ranks, among.bytes, whole, own, kStateSite);
  if (!own.empty()) memory_.write(bytes_of(state), own);
}

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
