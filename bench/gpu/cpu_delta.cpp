#include "bench/gpu/cpu_delta.h"

#include <cstddef>

#include "backend/cpu/cpu_backend.h"

namespace leq::LEQ_GPU::bench {

std::optional<std::vector<float>> cpu_delta_net(const DeltaText& text) {
  const DeltaCase& sizes = text.sizes();
  const DeltaInputs& in = text.inputs();
  DeltaShape shape;
  shape.key_heads = sizes.key_heads;
  shape.value_heads = sizes.value_heads;
  shape.key_dim = sizes.key_dim;
  shape.value_dim = sizes.value_dim;
  shape.taps = sizes.taps;
  shape.conv = in.conv.data();
  shape.a_log = in.a_log.data();
  shape.dt_bias = in.dt_bias.data();
  shape.norm = {NormKind::rms, in.gain.data(), nullptr, kDeltaNormEps, sizes.value_dim};

  const auto backend = make_cpu_backend({.isa = chosen_isa()});
  const std::int64_t rows = std::ssize(in.mixed[0]) / sizes.width();
  backend->memory().scratch(backend->layout().delta_scratch_bytes(rows, shape));
  Rows mixed = backend->allocate_rows(rows, sizes.width(), {});
  Rows gates = backend->allocate_rows(rows, 2 * sizes.value_heads, {});
  Rows out = backend->allocate_rows(rows, sizes.values(), {});
  backend->assign(in.mixed[0], mixed);
  backend->assign(in.gates[0], gates);
  std::vector<std::byte> state(sizes.state_numbers() * sizeof(float));
  SequenceRun run;
  run.rows = rows;
  run.state_to = state.data();
  backend->delta_net(mixed, gates, {rows, {&run, 1}}, shape, out);
  std::vector<float> values(static_cast<std::size_t>(rows * sizes.values()));
  backend->download(out, rows, values);
  return values;
}

}  // namespace leq::LEQ_GPU::bench
