// Sizes of Gated DeltaNet, and the errors of devices that do not implement it.
#include "backend/layout.h"
#include "backend/operations.h"
#include "base/error.h"

namespace leq {

DeltaShape DeltaShape::whole() const {
  DeltaShape all = *this;
  if (all_key_heads == 0) return all;
  all.key_heads = all_key_heads;
  all.value_heads = all_value_heads;
  all.first_key_head = 0;
  return all;
}

int DeltaShape::group() const {
  const DeltaShape all = whole();
  return all.value_heads / all.key_heads;
}

int DeltaShape::first_value_head() const { return first_key_head * group(); }

std::int64_t delta_state_numbers(const DeltaShape& shape) {
  return shape.key_dim * shape.values() + (shape.taps - 1) * shape.channels();
}

void Operations::delta_net(Rows&, Rows&, const BatchView&, const DeltaShape&, const RowsFor&) {
  fail(ErrorKind::internal, "delta net: this device does not run it");
}

std::size_t Layout::delta_scratch_bytes(std::int64_t, const DeltaShape&) const {
  fail(ErrorKind::bad_setting, Setting{"device"},
       ": this model has layers of Gated DeltaNet, which ", "run on the CPU only; use ",
       Setting{"device"}, " cpu");
}

}  // namespace leq
