#include "comm/communicator.h"

#include <string>

namespace leq {
namespace {

class OneRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void gather(std::span<const SharedRows>, Receivers, std::string_view) override {}
  void broadcast(std::vector<std::byte>&, std::string_view) override {}
  void barrier(std::string_view) override {}
  Error abort(const Error& error) noexcept override { return error; }
  std::chrono::milliseconds timeout() const override { return {}; }
};

}  // namespace

Error rank_error(const Communicator& ranks, const Error& error) {
  std::string text =
      "rank " + std::to_string(ranks.rank()) + " of " + std::to_string(ranks.size()) + ": ";
  if (ranks.step() > 0) text += "step " + std::to_string(ranks.step()) + ": ";
  return Error(text + error.marked(), error.kind());
}

Communicator& one_rank() {
  static OneRank rank;
  return rank;
}

}  // namespace leq
