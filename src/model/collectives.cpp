#include "model/collectives.h"

#include <new>
#include <string>

#include "backend/rows_slice.h"
#include "base/error.h"

namespace leq {

Collectives::Collectives(Backend& backend, Workspace& work, Communicator& ranks,
                         const RankPlace& place)
    : backend_(backend), work_(work), ranks_(ranks), place_(place) {
  if (place_.alone()) return;
  linked_ = backend_.connect(ranks_, {work_.exchange.data(), work_.exchange.size()});
  if (linked_ != nullptr || !ranks_.in_one_process()) return;
  shares_.emplace(ranks_);
  work_.share(ranks_);
}

// The rows of a batch that this rank computes of a block that all ranks share.
Slice Collectives::own_rows(std::int64_t tokens) const {
  if (!shares_) return {0, tokens};
  const auto ranks = std::ssize(place_.shares), rank = static_cast<std::int64_t>(place_.rank);
  return {tokens * rank / ranks, tokens * (rank + 1) / ranks};
}

void Collectives::embed(const Embedding& all) {
  const Slice own = own_rows(std::ssize(all.ids));
  if (!own.empty()) {
    const auto first = static_cast<std::size_t>(own.first);
    const auto count = static_cast<std::size_t>(own.count());
    Rows x = slice_tokens(work_.x, own);
    backend_.embed(
        {all.tokens, all.ids.subspan(first, count), all.positions, all.at.subspan(first, count)},
        x);
    if (work_.rotation.block > 0)
      backend_.rotate(x, own.count(), work_.rotation, Direction::forward);
  }
  if (shares_) ranks_.barrier("the embeddings");
}

RowsFor Collectives::norm(const Norm& norm, const LayerLinear& linear, std::int64_t tokens) {
  // Fewer rows are computed faster by every rank alone than divided.
  constexpr std::int64_t kRowsOfARank = 8;
  const auto ranks = std::ssize(place_.shares);
  if (shares_ && tokens >= kRowsOfARank * ranks) {
    if (const auto common = work_.common_input_of(linear)) {
      norm_own_rows(norm, *common, tokens, linear.name);
      return *common;
    }
  }
  const RowsFor out = work_.input_of(linear);
  backend_.norm(work_.x, tokens, norm, out);
  return out;
}

void Collectives::norm_own_rows(const Norm& norm, const RowsFor& out, std::int64_t tokens,
                                std::string_view site) {
  const Slice own = own_rows(tokens);
  const Rows x = slice_tokens(work_.x, own);
  Rows rows = slice_tokens(out.rows, own);
  try {
    backend_.norm(x, own.count(), norm, {rows, out.consumer});
  } catch (const Error& error) {
    throw Error("rows from " + std::to_string(own.first) + " on: " + std::string(error.marked()),
                error.kind());
  }
  ranks_.barrier(site);
}

void Collectives::gather(const SharedBlock& block, std::int64_t tokens, Receivers to,
                         std::string_view site) {
  Communicator& ranks = linked_ != nullptr ? *linked_ : ranks_;
  backend_.gather(block.whole, tokens, {ranks, block.columns, to, block.own.rows, site});
}

// Rows that are not finite show where a device is waited for; where it works before its operations
// return they have been thrown, and gathers have ended the others.
void Collectives::finish_step() {
  if (linked_ == nullptr) return;
  constexpr std::string_view kSite = "the end of the step";
  linked_->finish(kSite);
  backend_.synchronize();
  linked_->barrier(kSite);
}

void Collectives::abort_on_error(const std::function<void()>& work) {
  if (alone()) return work();
  ranks_.at_step(ranks_.step() + 1);
  try {
    work();
  } catch (const Error& error) {
    throw ranks_.abort(rank_error(ranks_, error));
  } catch (const std::bad_alloc&) {
    throw ranks_.abort(rank_error(ranks_, Error("out of memory", ErrorKind::no_memory)));
  }
}

}  // namespace leq
