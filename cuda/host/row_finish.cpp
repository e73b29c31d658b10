#include "cuda/host/row_finish.h"

#include "cuda/host/row_blocks.h"
#include "cuda/kernels/rows/online.h"
#include "cuda/layout/gpu_layout.h"

namespace leq::LEQ_GPU {

RowFinish::RowFinish(int device, rt::Stream& stream, GpuMemory& memory, Faults& faults,
                     PartEvents& clock)
    : stream_(stream),
      memory_(memory),
      faults_(faults),
      clock_(clock),
      tickets_(device, kTickets * sizeof(unsigned)),
      scales_(device, stream) {
  rt::fill_zero(tickets_.data(), kTickets * sizeof(unsigned), stream_);
}

Quantize RowFinish::quantize_as(const RowsFor& target, std::string_view site) {
  const Rows& out = target.rows;
  Quantize q;
  q.terms = term_rows(out);
  if (!is_coded(out.format.act)) return q;
  q.out = code_rows(out);
  if (has_stored_scale(out.format.act)) {
    q.scale = target.consumer.act_scale;
    q.inverse = 1.0f / q.scale;
  }
  if (has_moving_scale(out.format.act)) q.online = scales_.of(*target.consumer.online);
  q.fault = faults_.watch(site);
  return q;
}

OutputCodes RowFinish::codes_of_outputs(const RowsFor& target, std::string_view site) {
  OutputCodes codes;
  codes.tickets = tickets();
  if (target.rows.format.act != ActKind::g128) return codes;
  codes.quantize = quantize_as(target, site);
  codes.inv_smooth = target.consumer.inv_smooth;
  return codes;
}

void RowFinish::finish(const RowsFor& target, std::int64_t tokens, std::string_view site) {
  const Rows& out = target.rows;
  if (!finishes(target)) return;
  const float* factors = target.consumer.inv_smooth;
  const auto span = clock_.in(StepPart::quant, [&] { return 2 * moved_bytes(out, tokens); });
  QuantizeArguments a = {float_rows(out), tokens, out.width, factors, {}};
  const bool step = is_long_step(out, tokens);
  if (!step) a.quantize = quantize_as(target, site);
  if (!step || a.inv_smooth != nullptr) launch_quantize(a, stream_);
  if (step) quantize_step(target, tokens, site);
}

void RowFinish::quantize_step(const RowsFor& target, std::int64_t tokens, std::string_view site) {
  const Rows& out = target.rows;
  OnlineArguments a = {float_rows(out), tokens, out.width, quantize_as(target, site)};
  a.largest = reinterpret_cast<float*>(memory_.scratch(step_scratch_bytes(tokens)).data());
  a.clipped = reinterpret_cast<unsigned*>(a.largest + tokens);
  launch_online(a, stream_);
}

}  // namespace leq::LEQ_GPU
