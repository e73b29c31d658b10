// Errors of devices that do not implement add_rows and cap_logits.
#include "backend/operations.h"
#include "base/error.h"

namespace leq {

void Operations::add_rows(const Rows&, std::int64_t, Rows&) {
  fail(ErrorKind::internal, "add rows: this device does not run it");
}

void Operations::cap_logits(Rows&, std::int64_t, float, float) {
  fail(ErrorKind::internal, "cap of logits: this device does not run it");
}

}  // namespace leq
