#include "compare/fusion.h"

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/rows.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "eval/statistics.h"

namespace leq {
namespace {

constexpr std::int64_t kFusedRows = 256;
constexpr int kTimedPasses = 101;
constexpr int kPassesAtOnce = 10;  // several, because a clock tick is long compared with one pass

template <class Pass>
double timed_ms(const Pass& pass) {
  const Stopwatch watch;
  for (int i = 0; i < kPassesAtOnce; ++i) pass();
  return 1e3 * watch.seconds() / kPassesAtOnce;
}

// Alternates fused and separate passes, so that other load on the machine affects both equally.
template <class Fused, class Separate>
Json compared_ms(const Fused& fused, const Separate& apart) {
  std::vector<double> fused_ms, apart_ms;
  for (int i = 0; i < kTimedPasses; ++i) {
    fused_ms.push_back(timed_ms(fused));
    apart_ms.push_back(timed_ms(apart));
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < fused_ms.size(); ++i) ratios.push_back(fused_ms[i] / apart_ms[i]);
  // Only the middle half is used: interference by other programs makes a few passes far longer.
  std::ranges::sort(ratios);
  const auto quarter = ratios.size() / 4;
  const auto middle = std::span(ratios).subspan(quarter, ratios.size() - 2 * quarter);
  const Interval interval = bootstrap_mean(middle, 1);
  return {{"fused_ms", median(fused_ms)},
          {"apart_ms", median(apart_ms)},
          {"ratio", median(ratios)},
          {"ratio_low", interval.low},
          {"ratio_high", interval.high}};
}

Rows filled_rows(Backend& backend, std::int64_t width) {
  Random random(1);
  std::vector<float> values(static_cast<std::size_t>(kFusedRows * width));
  for (float& value : values) value = random.normal();
  Rows rows = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, RowsFormat{});
  backend.assign(values, rows);
  return rows;
}

}  // namespace

Json measure_fusion(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  Backend& backend = *bench.workers().backend;
  const Weights weights = bind_weights(model->file(), model->config(), backend.memory());
  const LayerWeights& layer = weights.layers.front();
  const LayerLinear& linear = *layer.linears().front();
  require(is_coded(linear.act) && !has_moving_scale(linear.act),
          "its inputs are not codes of their own rows");
  RowsFormat codes_alone = backend.layout().format_for(linear);
  codes_alone.values = false;
  const std::int64_t width = model->config().width;
  Rows x = filled_rows(backend, width);
  Rows plain = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, RowsFormat{});
  Rows coded = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, codes_alone);
  const RowsConsumer consumer = {.act_scale = linear.act_scale, .inv_smooth = linear.inv_smooth};
  const Norm& norm =
      std::visit([](const auto& mixer) -> const Norm& { return mixer.norm; }, layer.mixer);
  const cpu::RowKernels& kernels = cpu::row_kernels(chosen_isa());
  Json json = compared_ms([&] { backend.norm(x, kFusedRows, norm, RowsFor(coded, consumer)); },
                          [&] {
                            backend.norm(x, kFusedRows, norm,
                                         RowsFor(plain, {.inv_smooth = linear.inv_smooth}));
                            const RowsFor target(coded, consumer);
                            bench.workers().pool.run(kFusedRows, [&](std::int64_t t, int) {
                              cpu::quantize_columns(kernels, plain.values + t * plain.value_stride,
                                                    t, 0, width, target);
                            });
                          });
  json["rows"] = kFusedRows;
  json["columns"] = width;
  return json;
}

}  // namespace leq
