// Caches a runtime's facts about kernels. They are queried once for each kernel and device, because
// GPUs of different kinds in one process run different code.
#pragma once

#include <map>
#include <mutex>
#include <utility>

namespace leq::LEQ_GPU::rt {

template <class Facts>
class KernelTable {
 public:
  // Calls `ask` if the fact is not cached; if `ask` throws, nothing is cached.
  template <class Ask>
  Facts of(const void* kernel, int device, Ask ask) {
    const std::lock_guard hold(lock_);
    const std::pair key(kernel, device);
    auto found = known_.find(key);
    if (found == known_.end()) found = known_.emplace(key, ask()).first;
    return found->second;
  }

 private:
  std::mutex lock_;
  std::map<std::pair<const void*, int>, Facts> known_;
};

}  // namespace leq::LEQ_GPU::rt
