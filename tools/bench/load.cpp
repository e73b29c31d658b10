#include "tools/bench/load.h"

#include <sys/resource.h>

#include <cstdint>
#include <vector>

#include "base/progress.h"
#include "base/stopwatch.h"
#include "model/session.h"
#include "platform/make_backend.h"

namespace leq {
namespace {

std::int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

Row bench_load(const std::string& path, LoadMode mode, int threads, int runs) {
  constexpr std::int64_t kPositions = 512;
  std::vector<double> load_seconds, first_token_seconds;
  std::uint64_t file_bytes = 0, plan_bytes = 0;
  Progress progress("loading", runs, "runs");
  for (int run = 0; run < runs; ++run) {
    progress.update(run);
    const auto backend = make_backend({"cpu", threads});
    const Stopwatch watch;
    const Model model(path, LoadOptions{.mode = mode});
    load_seconds.push_back(watch.seconds());
    RunLimits limits;
    limits.context = std::min(kPositions, model.config().context);
    limits.key_type = limits.value_type = default_kv_type(model.type());
    Session session(model, *backend, resolve_limits(limits, model.config()));
    const Token token = 1;
    session.feed(0, {&token, 1});
    first_token_seconds.push_back(watch.seconds());
    file_bytes = model.file().file_bytes();
    plan_bytes = session.plan().total();
  }
  const char* how = mode == LoadMode::map ? "map" : mode == LoadMode::read ? "read" : "automatic";
  return {{"model", path},
          {"threads", threads},
          {"loading", how},
          {"file_bytes", static_cast<std::int64_t>(file_bytes)},
          {"load_seconds", Cell(median(load_seconds), 3)},
          {"first_token_seconds", Cell(median(first_token_seconds), 3)},
          {"planned_bytes", static_cast<std::int64_t>(plan_bytes)},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

}  // namespace leq
