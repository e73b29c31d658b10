#include "quantize/pipeline/block_pass.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/division.h"
#include "quantize/pipeline/block_readers.h"

namespace leq {
namespace {

BlockHalf half_of(Reader reader) {
  return reader == Reader::qkv || reader == Reader::o ? BlockHalf::attention : BlockHalf::mlp;
}

std::int64_t inputs_of(Reader reader, const ModelConfig& config) {
  if (reader == Reader::o) return config.heads * config.head_dim;
  return reader == Reader::down ? config.hidden : config.width;
}

// Gathers what the pass wants; two halves of the windows side by side to be compared. One rank adds
// up what it sees as it sees it; several run a window each, tell each other what they saw, and all
// add up all of it in the order of windows.
class Collector final : public Observer {
 public:
  Collector(const PassContext& context, const Pass& pass)
      : context_(context), pass_(pass), wanted_(pass.wanted) {
    wanted_.share = {context.ranks.rank(), context.ranks.size()};
  }

  void start_window(std::int64_t window, std::int64_t tokens) {
    window_ = window;
    tokens_ = tokens;
  }

  bool see(Reader reader, const Rows& input, std::int64_t tokens) override {
    if (wants(reader)) {
      std::vector<float>& values = seen_[reader];
      values.resize(static_cast<std::size_t>(tokens * input.width));
      context_.backend.download(input, tokens, values);
      if (context_.ranks.size() == 1) add(reader, window_, values);
    }
    const Extent extent = half_of(reader) == BlockHalf::attention ? pass_.attention : pass_.mlp;
    return extent == Extent::whole ||
           std::any_of(pass_.readers.begin(), pass_.readers.end(), [&](Reader later) {
             return half_of(later) == half_of(reader) && later > reader;
           });
  }

  // After each rank has run one of the windows from `first` on, the last ranks perhaps none.
  void share_windows(std::int64_t first) {
    if (context_.ranks.size() == 1) return;
    const std::int64_t there =
        std::min<std::int64_t>(context_.ranks.size(), context_.hidden.windows() - first);
    for (const Reader reader : pass_.readers) {
      const auto one = static_cast<std::size_t>(tokens_ * inputs_of(reader, context_.run.config()));
      std::vector<float>& seen = seen_[reader];
      if (context_.ranks.rank() >= there) seen.clear();
      std::vector<float> all(one * static_cast<std::size_t>(there));
      gather(reader, seen, one, all);
      for (std::int64_t window = 0; window < there; ++window) {
        add(reader, first + window,
            std::span(all).subspan(static_cast<std::size_t>(window) * one, one));
      }
    }
  }

  PassResult finish() {
    if (pass_.wanted.hessian && context_.ranks.size() > 1) {
      for (auto& [reader, statistics] : result_.statistics) join_hessian(statistics);
    }
    for (auto& [reader, statistics] : result_.statistics) {
      const auto first = halves_.find(reader);
      if (first == halves_.end()) continue;
      InputStatistics second;
      second.columns = statistics.columns;
      second.tokens = statistics.tokens - first->second.tokens;
      second.absmax = statistics.absmax;
      second.square_sum = statistics.square_sum;
      for (std::size_t k = 0; k < second.square_sum.size(); ++k) {
        second.square_sum[k] -= first->second.square_sum[k];
        statistics.absmax[k] = std::max(statistics.absmax[k], first->second.absmax[k]);
      }
      const HalvesDifference difference = compare_halves(first->second, second);
      result_.halves.absmax = std::max(result_.halves.absmax, difference.absmax);
      result_.halves.square_mean = std::max(result_.halves.square_mean, difference.square_mean);
    }
    return std::move(result_);
  }

 private:
  bool wants(Reader reader) const {
    return std::find(pass_.readers.begin(), pass_.readers.end(), reader) != pass_.readers.end();
  }

  void add(Reader reader, std::int64_t window, std::span<const float> values) {
    InputStatistics& statistics = result_.statistics[reader];
    if (window > 0 && window == context_.hidden.windows() / 2) start_second_half(reader);
    accumulate(statistics,
               {values, std::ssize(values) / tokens_, window * tokens_,
                context_.hidden.windows() * tokens_},
               wanted_, context_.block + " (" + input_name(0, reader).substr(9) + ")",
               context_.pool);
  }

  // Sums go on and are told apart by what they were; the largest magnitudes start again.
  void start_second_half(Reader reader) {
    InputStatistics& statistics = result_.statistics[reader];
    InputStatistics& first = halves_[reader];
    first.columns = statistics.columns;
    first.tokens = statistics.tokens;
    first.square_sum = statistics.square_sum;
    first.absmax = std::move(statistics.absmax);
    statistics.absmax.assign(first.absmax.size(), 0.0f);
  }

  // `all`: the windows of the first ranks, `one` number each.
  void gather(Reader reader, std::span<const float> own, std::size_t one, std::span<float> all) {
    const auto bytes_of = [](std::size_t numbers) { return numbers * sizeof(float); };
    std::vector<ByteRange> parts;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(context_.ranks.size()); ++rank) {
      parts.push_back({std::min(bytes_of(all.size()), bytes_of(one * rank)),
                       std::min(bytes_of(all.size()), bytes_of(one * (rank + 1)))});
    }
    const auto rank = static_cast<std::size_t>(context_.ranks.rank());
    ensure(bytes_of(own.size()) == parts[rank].count(), context_.block, ": ", own.size(),
           " numbers of a window, expected ", parts[rank].count() / sizeof(float));
    const auto to = std::as_writable_bytes(all);
    std::ranges::copy(std::as_bytes(own),
                      to.begin() + static_cast<std::ptrdiff_t>(parts[rank].first));
    const SharedRows row = {1, parts, to.data() + parts[rank].first, 0, to.data(), to.size()};
    context_.ranks.gather({&row, 1}, Receivers::all,
                          "inputs of " + context_.block + input_name(0, reader).substr(8));
  }

  void join_hessian(InputStatistics& statistics) {
    const TileShare own = wanted_.share;
    const std::vector<double> mine = tiles_of(statistics.hessian, statistics.columns, own);
    const auto bytes = std::as_bytes(std::span(mine));
    const auto all = gather_bytes(context_.ranks, {bytes.begin(), bytes.end()}, Receivers::all,
                                  "X^T X of " + context_.block);
    for (TileShare share = {0, own.count}; share.index < own.count; ++share.index) {
      const auto& theirs = all[static_cast<std::size_t>(share.index)];
      std::vector<double> numbers(theirs.size() / sizeof(double));
      std::memcpy(numbers.data(), theirs.data(), numbers.size() * sizeof(double));
      if (share.index == own.index) continue;
      put_tiles(numbers, statistics.hessian, statistics.columns, share);
    }
  }

  const PassContext& context_;
  const Pass& pass_;
  StatisticsWanted wanted_;
  std::int64_t window_ = 0, tokens_ = 0;       // at work, and of each
  std::map<Reader, std::vector<float>> seen_;  // in that window
  std::map<Reader, InputStatistics> halves_;   // absmax and square_sum of the first half
  PassResult result_;
};

}  // namespace

// A rank runs every so many-th window, always the same ones: it keeps the hidden states of these.
PassResult run_pass(const PassContext& context, const Pass& pass) {
  Collector collector(context, pass);
  HiddenStates& hidden = context.hidden;
  std::vector<float> states(static_cast<std::size_t>(hidden.numbers()));  // [length][W]
  for (std::int64_t first = 0; first < hidden.windows(); first += context.ranks.size()) {
    const std::int64_t window = first + context.ranks.rank();
    collector.start_window(window, context.run.tokens_of(states.size()));
    if (window < hidden.windows()) {
      hidden.read(window, states);
      if (pass.attention != Extent::none) context.run.run(BlockHalf::attention, states, &collector);
      if (pass.mlp != Extent::none) context.run.run(BlockHalf::mlp, states, &collector);
      if (pass.keep) hidden.write(window, states);
    }
    collector.share_windows(first);
    for (int done = 0; done < context.ranks.size() && first + done < hidden.windows(); ++done) {
      context.on_window();
    }
  }
  return collector.finish();
}

}  // namespace leq
