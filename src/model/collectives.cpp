#include "model/collectives.h"

#include <new>

#include "base/error.h"

namespace leq {

Collectives::Collectives(Backend& backend, Workspace& work, Communicator& ranks,
                         const RankPlace& place)
    : backend_(backend), ranks_(ranks), place_(place) {
  if (alone()) return;
  linked_ = backend_.connect(ranks_, {work.exchange.data(), work.exchange.size()});
}

void Collectives::gather(const SharedBlock& block, std::int64_t tokens, Receivers to,
                         std::string_view site) {
  Communicator& ranks = linked_ != nullptr ? *linked_ : ranks_;
  backend_.gather(block.whole, tokens, {ranks, block.columns, to, block.own.rows, site});
}

// With device collectives (linked_), an error such as a row that is not finite is only reported
// when the device is synchronized. Without them, gathers have already reported it to all ranks.
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
