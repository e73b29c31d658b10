// The interface between a model and a device, in four parts: memory, memory layout, the operations
// of a decoder, and steps, which are sequences of operations. Callers take only the parts that they
// need.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/layout.h"
#include "backend/memory.h"
#include "backend/operations.h"
#include "backend/steps.h"

namespace leq {

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

}  // namespace leq
