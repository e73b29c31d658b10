// Experts of a backend: their weights as a table on the device, and the launches of their linears.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/operations.h"
#include "cuda/host/memory.h"
#include "cuda/host/staging.h"
#include "cuda/kernels/experts/experts.h"

namespace leq::LEQ_GPU {

class DeviceExperts {
 public:
  DeviceExperts(int device, rt::Stream& stream) : device_(device), stream_(stream) {}

  // Operations::route: what is chosen stays on the device, in the place of the logits. `routes` get
  // their sizes alone.
  void route(const Rows& logits, std::int64_t tokens, const Routing& routing, const Fault& fault,
             ExpertRoutes& routes);
  // Throws Error where what reads the products of an expert wants other codes than those of others.
  static void check_readers(const ExpertLinears& experts, std::int64_t count);
  // out [R] = the linear of each row's expert; x has a row for each token, or for each of R.
  void multiply(const Rows& x, const ExpertRoutes& routes, const ExpertLinear& linear,
                Epilogue epilogue, const Rows& out);
  // x [T] += weight * products [R].
  void add(const Rows& products, const ExpertRoutes& routes, Rows& x);

 private:
  // The segments of all experts of one site.
  struct Table {
    std::vector<const std::uint8_t*> codes;  // of each segment: which weights these are
    std::unique_ptr<DeviceScratch> there;
  };
  const CodeSegment* table(const ExpertLinear& linear, std::int64_t experts);
  const ExpertChoice& choice_of(const ExpertRoutes& routes) const;

  int device_;
  rt::Stream& stream_;
  std::map<const ExpertRoutes*, ExpertChoice> choices_;  // workspaces keep their routes in place
  std::map<std::string, Table, std::less<>> tables_;     // by the first expert's name
};

}  // namespace leq::LEQ_GPU
