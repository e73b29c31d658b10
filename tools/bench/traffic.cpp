#include "tools/bench/traffic.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "base/progress.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "engine/engine.h"

namespace leq {
namespace {

// Returns the smallest value that is not below this fraction of all values.
double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto at = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(at, 1, values.size()) - 1];
}

// The arrival times of a Poisson process.
std::vector<double> arrivals(const Traffic& traffic, Random& random) {
  std::vector<double> times;
  double now = 0;
  for (std::int64_t i = 0; i < traffic.requests; ++i) {
    times.push_back(now);
    if (traffic.per_second > 0) now -= std::log1p(-random.uniform()) / traffic.per_second;
  }
  return times;
}

struct TrafficTimes {
  std::vector<double> first, next;  // seconds
  std::int64_t tokens = 0;
};

EngineRequest request_of(std::int64_t prompt, std::int64_t reply, std::int64_t vocabulary,
                         double arrival, const Stopwatch& clock, Random& random,
                         TrafficTimes& measured) {
  EngineRequest request;
  for (std::int64_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<Token>(random.bits() % vocabulary));
  }
  request.stop.max_tokens = reply;
  request.sampling.seed = random.bits();
  request.on_tokens = [&measured, &clock, arrival,
                       last = -1.0](std::span<const Token> tokens) mutable {
    const double now = clock.seconds();
    if (last < 0) {
      measured.first.push_back(now - arrival);
    } else {
      measured.next.push_back(now - last);
    }
    measured.next.insert(measured.next.end(), tokens.size() - 1, 0.0);
    measured.tokens += std::ssize(tokens);
    last = now;
  };
  request.on_end = [](const EngineReply& ended) {
    if (ended.error) throw *ended.error;
  };
  return request;
}

Cell milliseconds(std::vector<double>& seconds, double share) {
  return {1e3 * percentile(seconds, share), 1};
}

}  // namespace

Row bench_traffic(const BenchModel& model, Session& session, const Traffic& traffic) {
  const std::int64_t vocabulary = session.transformer().config().vocab;
  const Tokenizer tokenizer = numbered_tokens(vocabulary);
  Engine engine(session, tokenizer, {});
  Random random(traffic.seed);
  const std::vector<double> times = arrivals(traffic, random);
  TrafficTimes measured, late;
  const Stopwatch clock;
  const auto submit = [&](std::int64_t prompt, double arrival, TrafficTimes& into) {
    engine.submit(request_of(prompt, traffic.reply, vocabulary, arrival, clock, random, into));
  };
  Progress progress("replies", traffic.requests * traffic.reply, "tokens");
  bool late_is_due = traffic.long_prompt > 0;
  for (std::size_t next = 0; next < times.size() || engine.running() + engine.waiting() > 0;) {
    for (; next < times.size() && times[next] <= clock.seconds(); ++next) {
      submit(traffic.prompt, times[next], measured);
    }
    if (late_is_due && 4 * measured.tokens >= traffic.requests * traffic.reply) {
      submit(traffic.long_prompt, clock.seconds(), late);
      late_is_due = false;
    }
    progress.update(measured.tokens);
    if (engine.step() || next == times.size()) continue;
    std::this_thread::sleep_for(std::chrono::duration<double>(times[next] - clock.seconds()));
  }
  const double seconds = clock.seconds();
  const EngineCounts& counts = engine.counts();
  Row row = {
      {"model", model.name() + " " + model.scheme()},
      {"arrivals_per_second", Cell(traffic.per_second, 2)},
      {"requests", traffic.requests},
      {"sequences", session.limits().sequences},
      {"prompt", traffic.prompt},
      {"reply", traffic.reply},
      {"tokens_per_second", Cell(static_cast<double>(measured.tokens) / seconds, 1)},
      {"prompt_tokens_per_second", Cell(static_cast<double>(counts.prompt_tokens) / seconds, 1)},
      {"first_token_ms_p50", milliseconds(measured.first, 0.5)},
      {"first_token_ms_p99", milliseconds(measured.first, 0.99)},
      {"next_token_ms_p50", milliseconds(measured.next, 0.5)},
      {"next_token_ms_p90", milliseconds(measured.next, 0.9)},
      {"next_token_ms_p99", milliseconds(measured.next, 0.99)},
      {"accepted_tokens", counts.accepted_tokens},
      {"evictions", counts.evictions}};
  if (traffic.long_prompt > 0) {
    row.push_back({"long_prompt", traffic.long_prompt});
    row.push_back({"long_first_token_ms", milliseconds(late.first, 0.5)});
  }
  return row;
}

}  // namespace leq
