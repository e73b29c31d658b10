#include "platform/make_backend.h"

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/text.h"

namespace leq {

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  require(options.device == "cpu", "device \"", printable(options.device),
          "\": this build has \"cpu\" only");
  return make_cpu_backend({options.threads, chosen_isa()});
}

}  // namespace leq
