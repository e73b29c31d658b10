#include "tools/bench/fusion.h"

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/workers.h"
#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "model/open_model.h"

namespace leq {
namespace {

constexpr std::int64_t kFusedRows = 256;
constexpr int kPassesAtOnce = 10;  // several, because a clock tick is long compared with one pass

template <class Pass>
double timed_ms(const Pass& pass) {
  const Stopwatch watch;
  for (int i = 0; i < kPassesAtOnce; ++i) pass();
  return 1e3 * watch.seconds() / kPassesAtOnce;
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

Table bench_fusion(const std::string& path, int threads, int runs) {
  const Model model(path, {.mode = LoadMode::map});
  Workers workers(threads);
  Backend& backend = *workers.backend;
  const Weights weights = bind_weights(model.file(), model.config(), backend.memory());
  const LayerWeights& layer = weights.layers.front();
  const LayerLinear& linear = *layer.linears().front();
  require(is_coded(linear.act) && !has_moving_scale(linear.act), path,
          ": its inputs are not codes of their own rows");
  RowsFormat codes_alone = backend.layout().format_for(linear);
  codes_alone.values = false;
  const std::int64_t width = model.config().width;
  Rows x = filled_rows(backend, width);
  Rows plain = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, RowsFormat{});
  Rows coded = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, codes_alone);
  const RowsConsumer consumer = {.act_scale = linear.act_scale, .inv_smooth = linear.inv_smooth};
  const Norm& norm =
      std::visit([](const auto& mixer) -> const Norm& { return mixer.norm; }, layer.mixer);
  const cpu::RowKernels& kernels = cpu::row_kernels(chosen_isa());
  const auto fused = [&] { backend.norm(x, kFusedRows, norm, RowsFor(coded, consumer)); };
  const auto apart = [&] {
    backend.norm(x, kFusedRows, norm, RowsFor(plain, {.inv_smooth = linear.inv_smooth}));
    const RowsFor target(coded, consumer);
    workers.pool.run(kFusedRows, [&](std::int64_t t, int) {
      cpu::quantize_columns(kernels, plain.values + t * plain.value_stride, t, 0, width, target);
    });
  };
  Table table;
  for (int i = 0; i < runs; ++i) {
    const double fused_ms = timed_ms(fused), apart_ms = timed_ms(apart);
    table.add({{"rows", kFusedRows},
               {"columns", width},
               {"fused_ms", Cell(fused_ms, 5)},
               {"apart_ms", Cell(apart_ms, 5)}});
  }
  return table;
}

}  // namespace leq
