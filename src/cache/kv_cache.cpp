#include "cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

// Number of positions that a sequence may still read or be truncated to.
std::int64_t kept_positions(const KvResidual& residual) {
  return residual.recent + residual.block + KvPages::kRewind;
}

// Number of pages. Every sequence may have a partial page of its own.
std::int64_t pages_of(const KvShape& shape) {
  return pages_for(shape.positions) + shape.sequences - 1;
}

// Number of frames that all sequences need while one step appends, including the copy of a shared
// page, and one window more (keep_window).
std::int64_t frames_of(const KvShape& shape) {
  if (shape.window == 0) return 0;
  const std::int64_t of_sequence = pages_for(shape.window + KvPages::kRewind) + 3;
  const std::int64_t all =
      of_sequence * shape.sequences + pages_for(shape.batch_tokens) + pages_for(shape.window) + 2;
  return std::min(all, pages_of(shape));
}

KvResidual residual_of(const KvShape& shape) {
  const KvResidual residual =
      shape.residual.value_or(kv_residual(shape.key_type, shape.value_type));
  ensure(!residual.copies() || (residual.sinks >= 0 && residual.sinks <= kPageTokens &&
                                residual.recent >= 0 && kPageTokens % residual.block == 0),
         "KV cache: residual of ", residual.sinks, " sinks, ", residual.recent,
         " newest positions, blocks of ", residual.block);
  return residual;
}

// Number of f16 copies that all sequences need while one step appends.
std::int64_t copies_of(const KvShape& shape, const KvResidual& residual) {
  if (!residual.copies()) return 0;
  const std::int64_t of_sequence =
      pages_for(kept_positions(residual)) + (residual.sinks > 0 ? 3 : 2);
  const std::int64_t all = of_sequence * shape.sequences + pages_for(shape.batch_tokens);
  return std::min(all, pages_of(shape));
}

}  // namespace

KvType KvShape::type(std::int64_t layer, KvPart part) const {
  const std::vector<KvType>& own = part == KvPart::keys ? layer_key_types : layer_value_types;
  if (own.empty()) return part == KvPart::keys ? key_type : value_type;
  return own.at(static_cast<std::size_t>(layer));
}

KvHeads KvShape::heads(std::int64_t layer) const {
  if (layer_heads.empty()) return {kv_heads, head_dim};
  return layer_heads.at(static_cast<std::size_t>(layer));
}

KvPages::KvPages(DeviceMemory& memory, const Layout& layout, const KvShape& shape)
    : memory_(memory),
      layout_(layout),
      shape_(shape),
      residual_(residual_of(shape)),
      count_(pages_of(shape)),
      frame_count_(frames_of(shape)),
      copy_count_(copies_of(shape, residual_)) {
  std::size_t ends[2] = {}, copies_end = 0;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto kv_heads = static_cast<int>(shape.heads(layer).count);
    const auto head_dim = static_cast<int>(shape.heads(layer).dims);
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      Side& side = sides_.emplace_back();
      side.part = part;
      side.type = shape.type(layer, part);
      side.layer = static_cast<std::size_t>(layer);
      side.page_bytes = layout.page_bytes(part, side.type, kv_heads, head_dim);
      std::size_t& end = ends[part == KvPart::keys ? 0 : 1];
      side.pages_at = end;
      side.in_frames = shape.windowed(layer);
      end += static_cast<std::size_t>(side.in_frames ? frame_count_ : count_) * side.page_bytes;
      side.copied = kv_scheme(side.type).blocked();
      side.copies_at = copies_end;
      if (!side.copied) continue;
      side.copy_page_bytes = layout.page_bytes(KvPart::keys, KvType::f16, kv_heads, head_dim);
      copies_end += static_cast<std::size_t>(copy_count_) * side.copy_page_bytes;
    }
  }
  keys_ = Buffer(memory, ends[0]);
  values_ = Buffer(memory, ends[1]);
  if (copies_end > 0) copied_ = Buffer(memory, copies_end);
}

KvLayer KvPages::layer(std::int64_t layer, std::span<const std::int32_t> copies,
                       std::span<const std::int32_t> frames) const {
  const auto first = static_cast<std::size_t>(2 * layer);
  const Side &keys = sides_[first], &values = sides_[first + 1];
  KvLayer view = {keys.type,          values.type,     page_at(keys, 0),
                  page_at(values, 0), keys.page_bytes, values.page_bytes};
  view.residual = residual_;
  if (keys.copied) view.key_copies = copy_at(keys, 0);
  if (values.copied) view.value_copies = copy_at(values, 0);
  view.copy_page_bytes = std::max(keys.copy_page_bytes, values.copy_page_bytes);
  view.copies = copies;
  view.in_frames = keys.in_frames;
  view.frames = frames;
  return view;
}

std::byte* KvPages::page_at(const Side& side, std::int32_t page) const {
  const Buffer& all = side.part == KvPart::keys ? keys_ : values_;
  return all.data() + side.pages_at + static_cast<std::size_t>(page) * side.page_bytes;
}

std::byte* KvPages::copy_at(const Side& side, std::int32_t copy) const {
  return copied_.data() + side.copies_at + static_cast<std::size_t>(copy) * side.copy_page_bytes;
}

void KvPages::copy(const PageCopy& what) {
  for (const Side& side : sides_) {
    if (what.of == PageCopy::Of::f16_copy) {
      if (!side.copied) continue;
      memory_.copy(copy_at(side, what.to), copy_at(side, what.from), side.copy_page_bytes);
    } else if (side.in_frames == (what.of == PageCopy::Of::frame) && side.page_bytes > 0) {
      memory_.copy(page_at(side, what.to), page_at(side, what.from), side.page_bytes);
    }  // a rank without heads has no memory
  }
}

KvCache::KvCache(DeviceMemory& memory, const Layout& layout, const KvShape& shape)
    : pages_(memory, layout, shape),
      frames_(shape.window > 0 ? pages_.count() : 0, pages_.frame_count()),
      copies_(pages_.count(), pages_.copy_count()),
      sequences_(static_cast<std::size_t>(shape.sequences)),
      references_(static_cast<std::size_t>(page_count()), 0),
      quantized_(static_cast<std::size_t>(page_count()), 0) {
  for (std::int64_t page = page_count(); page-- > 0;) {
    free_.push_back(static_cast<std::int32_t>(page));
  }
}

KvCache::Sequence& KvCache::at(std::int32_t sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(sequence));
}

const KvCache::Sequence& KvCache::at(std::int32_t sequence) const {
  ensure(sequence >= 0 && sequence < shape().sequences, "KV cache: sequence ", sequence,
         ", there are ", shape().sequences);
  return sequences_[static_cast<std::size_t>(sequence)];
}

std::int64_t KvCache::length(std::int32_t sequence) const { return at(sequence).length; }

std::span<const std::int32_t> KvCache::pages(std::int32_t sequence) const {
  return at(sequence).pages;
}

bool KvCache::shares_last_page(std::int32_t sequence) const {
  const Sequence& source = at(sequence);
  return source.length % kPageTokens != 0 && holders(source.pages.back()) > 1;
}

std::int64_t KvCache::first_visible(std::int64_t position) const {
  if (shape().window == 0) return 0;
  return std::max<std::int64_t>(0, position + 1 - shape().window) / kPageTokens;
}

std::int64_t KvCache::first_held(std::int64_t length) const {
  return first_visible(std::max<std::int64_t>(0, length - kRewind));
}

std::int64_t KvCache::pages_to_append(std::int32_t sequence, std::int64_t count) const {
  const Sequence& source = at(sequence);
  return pages_for(source.length + count) - std::ssize(source.pages) +
         (shares_last_page(sequence) ? 1 : 0);
}

void KvCache::append(std::int32_t sequence, std::int64_t count) { grow(sequence, count, 0, 0); }

void KvCache::grow(std::int32_t sequence, std::int64_t count, std::int64_t copied_from,
                   std::int64_t passed) {
  Sequence& target = at(sequence);
  const std::int64_t needed = pages_to_append(sequence, count);
  const std::int64_t in_last = target.length % kPageTokens;
  require(needed <= free_pages(), "context full: sequence ", sequence, " holds ", target.length,
          " positions, ", count, " more need ", needed, " pages of ", kPageTokens, ", ",
          free_pages(), " of ", page_count(), " are free; raise ", Setting{"context"});
  target.passed = std::max(target.passed, passed);
  if (shares_last_page(sequence)) {
    const std::int32_t own = take_page(), before = target.pages.back();
    if (shape().window > 0) give_frame(own);
    copy_page(before, own);
    target.pages.back() = own;
    if (copies_.has(before)) {
      give_copy(own);  // may reuse the copy of `before`, which then has the data
      if (copies_.has(before)) copy_copies(before, own);
    }
    release(before);
  }
  if (in_last != 0 && pages_.residual().copies()) {
    const std::int32_t last = target.pages.back();
    std::uint8_t& quantized = quantized_[static_cast<std::size_t>(last)];
    quantized = std::min(quantized, static_cast<std::uint8_t>(in_last / pages_.residual().block));
    if (!copies_.has(last)) give_copy(last);
  }
  target.length += count;
  while (std::ssize(target.pages) < pages_for(target.length)) {
    target.pages.push_back(take_page());
    if (shape().window > 0 && std::ssize(target.pages) > target.passed) {
      give_frame(target.pages.back());
    }
    const std::int64_t end = std::ssize(target.pages) * kPageTokens;
    const bool sinks = target.pages.size() == 1 && pages_.residual().sinks > 0;
    if (pages_.residual().copies() && (sinks || end > copied_from)) give_copy(target.pages.back());
  }
}

// For each page, whether its frame, or its f16 copy, must be kept for some sequence.
std::vector<bool> KvCache::pages_in_use(bool frames) const {
  std::vector<bool> used(static_cast<std::size_t>(page_count()), false);
  for (const Sequence& sequence : sequences_) {
    // The first page that is kept, apart from the sinks' page.
    const std::int64_t oldest =
        frames ? sequence.passed
               : std::max<std::int64_t>(0, sequence.committed - kept_positions(pages_.residual())) /
                     kPageTokens;
    for (std::size_t i = 0; i < sequence.pages.size(); ++i) {
      const bool kept = std::cmp_greater_equal(i, oldest);
      const bool first = i == 0 && !frames && pages_.residual().sinks > 0;
      if (kept || first) used[static_cast<std::size_t>(sequence.pages[i])] = true;
    }
  }
  return used;
}

void KvCache::give_copy(std::int32_t page) {
  const bool found = copies_.make_free([&] { return pages_in_use(false); });
  ensure(found, "KV cache: all ", copies_.count(), " f16 copies of pages are in use");
  copies_.give(page);
}

void KvCache::give_frame(std::int32_t page) {
  const bool found = frames_.make_free([&] { return pages_in_use(true); });
  ensure(found, "KV cache: all ", frames_.count(), " frames of pages in windows are in use");
  frames_.give(page);
}

void KvCache::commit() {
  for (Sequence& sequence : sequences_) {
    if (sequence.committed == sequence.length) continue;
    if (pages_.residual().copies()) commit_blocks(sequence);
    sequence.committed = sequence.length;
    pass(sequence);
  }
}

// Marks the blocks that are complete now as quantized.
void KvCache::commit_blocks(Sequence& sequence) {
  const std::int64_t first = pages_.residual().quantized(sequence.committed) / kPageTokens;
  const std::int64_t quantized = pages_.residual().quantized(sequence.length);
  for (std::int64_t page = first; page * kPageTokens < quantized; ++page) {
    const std::int32_t index = sequence.pages[static_cast<std::size_t>(page)];
    const std::int64_t blocks =
        std::min<std::int64_t>(kPageTokens, quantized - page * kPageTokens) /
        pages_.residual().block;
    std::uint8_t& mark = quantized_[static_cast<std::size_t>(index)];
    mark = std::max(mark, static_cast<std::uint8_t>(blocks));
  }
}

// Marks pages that are before the windows.
void KvCache::pass(Sequence& sequence) {
  for (const std::int64_t held = first_held(sequence.length); sequence.passed < held;
       ++sequence.passed) {
    if (sequence.passed >= sequence.kept_first && sequence.passed < sequence.kept_last) continue;
    frames_.pass(sequence.pages[static_cast<std::size_t>(sequence.passed)]);
  }
}

// A later text may differ from a few tokens before the end on.
void KvCache::keep_window(std::int32_t sequence) {
  if (shape().window == 0) return;
  Sequence& target = at(sequence);
  target.kept_first = first_visible(std::max<std::int64_t>(0, target.length - kPageTokens));
  target.kept_last = std::ssize(target.pages);
}

std::int64_t KvCache::truncate(std::int32_t sequence, std::int64_t length) {
  Sequence& target = at(sequence);
  ensure(length >= 0 && length <= target.length, "KV cache: truncate sequence ", sequence, " to ",
         length, ", it holds ", target.length);
  // Length `committed`, from before the current step, can always be restored.
  if (length != target.committed && !reaches(target.pages, length)) length = 0;
  target.length = length;
  target.committed = std::min(target.committed, length);
  const auto keep = static_cast<std::size_t>(pages_for(length));
  while (target.pages.size() > keep) {
    release(target.pages.back());
    target.pages.pop_back();
  }
  target.passed = std::min(target.passed, first_held(length));
  target.kept_last = std::min(target.kept_last, std::ssize(target.pages));
  return length;
}

// Whether all positions that the next query reads as codes have codes, or f16 copies to quantize.
bool KvCache::codes_reach(std::span<const std::int32_t> pages, std::int64_t length) const {
  const std::int64_t closed = pages_.residual().closed_for(length);
  for (std::int64_t first = 0; first < closed; first += kPageTokens) {
    const std::int32_t page = pages[static_cast<std::size_t>(first / kPageTokens)];
    const std::int64_t blocks =
        std::min<std::int64_t>(kPageTokens, closed - first) / pages_.residual().block;
    if (quantized_[static_cast<std::size_t>(page)] < blocks && !copies_.has(page)) return false;
  }
  return true;
}

// Whether all positions that the next query reads as f16 have f16 copies.
bool KvCache::copies_reach(std::span<const std::int32_t> pages, std::int64_t length) const {
  if (pages_.residual().sinks > 0 && length > 0 && !copies_.has(pages[0])) return false;
  const std::int64_t open = pages_.residual().closed_for(length);
  for (std::int64_t page = open / kPageTokens; page * kPageTokens < length; ++page) {
    if (!copies_.has(pages[static_cast<std::size_t>(page)])) return false;
  }
  return true;
}

bool KvCache::reaches(std::span<const std::int32_t> pages, std::int64_t length) const {
  for (std::int64_t page = first_visible(length); page < pages_for(length); ++page) {
    if (shape().window > 0 && !frames_.has(pages[static_cast<std::size_t>(page)])) return false;
  }
  return !pages_.residual().copies() || (codes_reach(pages, length) && copies_reach(pages, length));
}

std::int64_t KvCache::reach(std::span<const std::int32_t> pages, std::int64_t length) const {
  const std::int64_t step = pages_.residual().copies() ? pages_.residual().block : kPageTokens;
  while (length > 0 && !reaches(pages, length)) {
    length = std::max<std::int64_t>(0, (length - 1) / step * step);
  }
  return length;
}

void KvCache::fork(std::int32_t from, std::int32_t to) {
  if (from == to) return;
  clear(to);
  const Sequence& source = at(from);
  adopt(to, source.pages, source.length);
}

void KvCache::adopt(std::int32_t sequence, std::span<const std::int32_t> pages,
                    std::int64_t length) {
  Sequence& target = at(sequence);
  ensure(target.length == 0 && std::ssize(pages) == pages_for(length), "KV cache: sequence ",
         sequence, " of ", target.length, " positions cannot begin with ", length, " on ",
         pages.size(), " pages");
  ensure(reaches(pages, length), "KV cache: sequence ", sequence, " cannot begin with ", length,
         " positions: their pages reach ", reach(pages, length));
  target.pages.assign(pages.begin(), pages.end());
  target.length = target.committed = length;
  target.passed = first_held(length);
  for (const std::int32_t page : target.pages) {
    hold(page);
    if (copies_.has(page)) copies_.touch(page);
  }
  if (shape().window == 0) return;
  for (const std::int32_t page : pages.subspan(static_cast<std::size_t>(target.passed))) {
    frames_.touch(page);
  }
}

void KvCache::replace_page(std::int32_t sequence, std::int64_t index, std::int32_t page) {
  std::int32_t& place = at(sequence).pages.at(static_cast<std::size_t>(index));
  const bool more_codes =
      quantized_[static_cast<std::size_t>(place)] > quantized_[static_cast<std::size_t>(page)];
  if (sees_more(place, page) || (more_codes && sees_more(page, place))) return;
  if (copies_.has(place) && !copies_.has(page)) {
    if (holders(place) > 1) return;
    copies_.move(place, page);
  }
  if (more_codes) copy_page(place, page);
  hold(page);
  release(place);
  place = page;
}

void KvCache::repeat_pages(std::int32_t sequence, std::int64_t length) {
  const std::int64_t filled = at(sequence).length;
  ensure(filled > 0 && filled % kPageTokens == 0 && length >= filled,
         "KV cache: repeat the pages of sequence ", sequence, " up to ", length, ": it holds ",
         filled, " positions, expected whole pages of ", kPageTokens, " and at most ", length);
  commit();
  Sequence& target = at(sequence);
  const std::vector<std::int32_t>& own = target.pages;
  grow(sequence, length - filled, length - kept_positions(pages_.residual()), first_held(length));
  const std::int64_t last = filled / kPageTokens;
  std::int64_t first = shape().window > 0 ? last : 0;  // first page that still has a frame
  while (first > 0 && frames_.has(own[static_cast<std::size_t>(first - 1)])) --first;
  // Source pages must be completely quantized; the sequence's first pages are.
  const std::int64_t sources =
      (pages_.residual().copies() ? pages_.residual().quantized(filled) / kPageTokens : last) -
      first;
  ensure(sources > 0, "KV cache: repeat the pages of sequence ", sequence, ": of ", filled,
         " positions no page is coded");
  for (std::int64_t page = last; page < std::ssize(own); ++page) {
    const std::int32_t from = own[static_cast<std::size_t>(first + (page - first) % sources)];
    const std::int32_t to = own[static_cast<std::size_t>(page)];
    copy_page(from, to);
    if (!copies_.has(to)) continue;
    ensure(copies_.has(from), "KV cache: page ", page, " to repeat has no f16 copy");
    copy_copies(from, to);
  }
  target.committed = length;
}

std::int32_t KvCache::take_page() {
  const std::int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  quantized_[static_cast<std::size_t>(page)] = 0;
  return page;
}

void KvCache::release(std::int32_t page) {
  ensure(holders(page) > 0, "KV cache: page ", page, " is released and has no holder");
  if (--references_[static_cast<std::size_t>(page)] > 0) return;
  copies_.drop(page);
  frames_.drop(page);
  free_.push_back(page);
}

void KvCache::copy(const PageCopy& what) {
  pages_.copy(what);
  if (leading_) leading_->send(what);
}

void KvCache::copy_page(std::int32_t from, std::int32_t to) {
  copy({PageCopy::Of::page, from, to});
  if (shape().window > 0 && frames_.has(to)) {
    copy({PageCopy::Of::frame, frames_.of(from), frames_.of(to)});
  }
  quantized_[static_cast<std::size_t>(to)] = quantized_[static_cast<std::size_t>(from)];
}

// Copies the f16 copy of one page to that of another; both pages must have one.
void KvCache::copy_copies(std::int32_t from, std::int32_t to) {
  copy({PageCopy::Of::f16_copy, copies_.of(from), copies_.of(to)});
}

}  // namespace leq
