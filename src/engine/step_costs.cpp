#include "engine/step_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace leq {
namespace {

// Weight of a new value in the moving mean if it is lower, and if it is higher. Lower values have
// more weight, because other load on the machine makes steps slower and never faster.
constexpr double kLessShare = 0.3;
constexpr double kMoreShare = 0.05;
constexpr double kOutlier = 4;  // times this much above the mean are clipped, because of other load
// Factor on the belief in a size's cost for each step of another size: the expected cost falls with
// the belief, until steps of that size are tried and measured again.
constexpr double kFades = 0.999;
constexpr double kForgotten = 0.5;  // if belief is below this, the mean starts anew
constexpr std::int64_t kSure = 3;   // measurements before outliers are clipped
// Weight of a new value in the mean cost of a prompt token; the same for lower and higher values.
constexpr double kMixedShare = 0.25;

}  // namespace

void StepCosts::Seen::add(double value) {
  if (belief < kForgotten) times = 0;
  belief = 1;
  if (times >= kSure && value > kOutlier * seconds) value = kOutlier * seconds;
  ++times;
  // The first steps of a size include page faults, so that a faster step replaces the mean.
  const double usual = value < seconds ? kLessShare : kMoreShare;
  const double share = times <= kSure && value < seconds ? 1 : usual;
  if (times == 1) seconds = value;
  seconds += share * (value - seconds);
}

namespace {

// Size class of a number of rows, and the largest number of rows of a class.
std::size_t size_of(std::int64_t rows) {
  return static_cast<std::size_t>(
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1) - 1)));
}
double rows_of(std::size_t size) { return static_cast<double>(std::int64_t{1} << size); }

}  // namespace

void StepCosts::saw(std::int64_t outputs, std::int64_t prompt_tokens, double seconds) {
  if (prompt_tokens == 0) {
    const std::size_t size = std::min(size_of(outputs), kSizes - 1);
    of_size_[size].add(seconds);
    for (std::size_t other = 0; other < kSizes; ++other) {
      if (other != size) of_size_[other].belief *= kFades;
    }
    return;
  }
  // A step with few prompt tokens is skipped, because their cost is below the measurement noise.
  if (outputs == 0 || prompt_tokens < kFewest / 2) return;
  const double each = std::max(0.0, seconds - seconds_without_prompts(outputs)) /
                      static_cast<double>(prompt_tokens);
  mixed_token_ = mixed_tokens_ == 0 ? each : std::lerp(mixed_token_, each, kMixedShare);
  mixed_tokens_ = prompt_tokens;
  if (prompt_tokens <= kFewest) few_tokens_seconds_ = seconds;
}

double StepCosts::seconds_without_prompts(std::int64_t outputs) const {
  const double known = seconds(outputs);
  return known > 0 ? known : few_tokens_seconds_;
}

double StepCosts::seconds(std::int64_t outputs) const {
  const std::size_t size = std::min(size_of(outputs), kSizes - 1);
  if (of_size_[size].times > 0) {
    // The estimate is at most the time of any step that has more rows.
    double least = of_size_[size].believed();
    for (std::size_t above = size + 1; above < kSizes; ++above) {
      if (of_size_[above].times > 0) least = std::min(least, of_size_[above].believed());
    }
    return least;
  }
  std::size_t below = size, above = size;
  while (below > 0 && of_size_[below].times == 0) --below;
  while (above + 1 < kSizes && of_size_[above].times == 0) ++above;
  const bool has_below = of_size_[below].times > 0, has_above = of_size_[above].times > 0;
  if (has_below && has_above) {
    const double along = (rows_of(size) - rows_of(below)) / (rows_of(above) - rows_of(below));
    return std::lerp(of_size_[below].believed(), of_size_[above].believed(), along);
  }
  if (has_below) return of_size_[below].believed();
  return has_above ? of_size_[above].believed() : 0;
}

std::int64_t StepCosts::prompt_tokens_within(double factor, std::int64_t outputs) const {
  const double budget = (factor - 1) * seconds_without_prompts(outputs);
  if (budget <= 0) return kFewest;
  const std::int64_t most = std::max(kFewest, 2 * mixed_tokens_);
  if (budget >= mixed_token_ * static_cast<double>(most)) return most;
  return std::max(kFewest, static_cast<std::int64_t>(budget / mixed_token_));
}

}  // namespace leq
