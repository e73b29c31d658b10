// A device that runs models: the operations of a layer and the steps of a session together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/layout.h"
#include "backend/memory.h"
#include "backend/operations.h"
#include "backend/steps.h"

namespace leq {

// fast: tensor cores wherever possible, with results close to the CPU's. exact: only kernels whose
// results are bit-identical to the CPU's; models that lack such kernels are rejected.
enum class Arithmetic : std::uint8_t { fast, exact };

// Options of the GPU backends.
struct GpuOptions {
  std::uint64_t memory_cap = 0;  // limit of device memory in bytes; 0: all that is free
  Arithmetic arithmetic = Arithmetic::fast;
  // Ranks that share a model use consecutive devices, one each.
  int rank = 0, ranks = 1;
};

// The interface between a model and a device, in four parts: memory, memory layout, the operations
// of a decoder, and steps, which are sequences of operations. Callers take only the parts that they
// need.
class Backend : public Operations, public Steps {
 public:
  virtual std::string name() const = 0;  // "cpu avx512vnni, 2 threads"
  // The name of the kernel that linear() runs, for plans ("avx512vnni int8 x int8, 12x32").
  virtual std::string describe(const Linear& linear) const = 0;

  virtual DeviceMemory& memory() = 0;
  virtual const Layout& layout() const = 0;

  Rows allocate_rows(std::int64_t capacity, std::int64_t width, const RowsFormat& format) {
    return leq::allocate_rows(memory(), layout(), capacity, width, format);
  }
};

// The description of a linear in plans, which is the same for every backend.

// A description such as "int8 x int8 rows smoothed, 12x32".
std::string linear_text(const Linear& linear, std::string_view kernel);

}  // namespace leq
