#include "quantize/pipeline/block_pass.h"

#include <algorithm>

#include "quantize/pipeline/block_readers.h"

namespace leq {
namespace {

BlockHalf half_of(Reader reader) {
  return reader == Reader::qkv || reader == Reader::o ? BlockHalf::attention : BlockHalf::mlp;
}

// Gathers what the pass wants; two halves of the windows side by side to be compared.
class Collector final : public Observer {
 public:
  Collector(const PassContext& context, const Pass& pass) : context_(context), pass_(pass) {}

  void start_window(std::int64_t window, std::int64_t tokens) {
    first_ = window * tokens;
    total_ = context_.hidden.windows() * tokens;
    if (window > 0 && window == context_.hidden.windows() / 2) start_second_half();
  }

  bool see(Reader reader, const Rows& input, std::int64_t tokens) override {
    if (wants(reader)) {
      values_.resize(static_cast<std::size_t>(tokens * input.width));
      context_.backend.download(input, tokens, values_);
      accumulate(result_.statistics[reader], {values_, input.width, first_, total_}, pass_.wanted,
                 context_.block + " (" + input_name(0, reader).substr(9) + ")", context_.pool);
    }
    const Extent extent = half_of(reader) == BlockHalf::attention ? pass_.attention : pass_.mlp;
    return extent == Extent::whole ||
           std::any_of(pass_.readers.begin(), pass_.readers.end(), [&](Reader later) {
             return half_of(later) == half_of(reader) && later > reader;
           });
  }

  PassResult finish() {
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

  // Sums go on and are told apart by what they were; the largest magnitudes start again.
  void start_second_half() {
    for (auto& [reader, statistics] : result_.statistics) {
      InputStatistics& first = halves_[reader];
      first.columns = statistics.columns;
      first.tokens = statistics.tokens;
      first.square_sum = statistics.square_sum;
      first.absmax = std::move(statistics.absmax);
      statistics.absmax.assign(first.absmax.size(), 0.0f);
    }
  }

  const PassContext& context_;
  const Pass& pass_;
  std::int64_t first_ = 0, total_ = 0;  // tokens
  std::vector<float> values_;
  std::map<Reader, InputStatistics> halves_;  // absmax and square_sum of the first half
  PassResult result_;
};

}  // namespace

PassResult run_pass(const PassContext& context, const Pass& pass) {
  Collector collector(context, pass);
  HiddenStates& hidden = context.hidden;
  std::vector<float> states(static_cast<std::size_t>(hidden.numbers()));  // [length][W]
  for (std::int64_t window = 0; window < hidden.windows(); ++window) {
    collector.start_window(window, context.run.tokens_of(states.size()));
    hidden.read(window, states);
    if (pass.attention != Extent::none) context.run.run(BlockHalf::attention, states, &collector);
    if (pass.mlp != Extent::none) context.run.run(BlockHalf::mlp, states, &collector);
    if (pass.keep) hidden.write(window, states);
    context.on_window();
  }
  return collector.finish();
}

}  // namespace leq
