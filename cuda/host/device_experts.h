// A backend's experts: a table of their weights on the device, and the launches of their linears.
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
  DeviceExperts(int device, rt::Stream& stream);

  // Operations::route: the chosen experts stay on the device, stored over the logits. On the host
  // `routes` gets only the sizes.
  void route(const Rows& logits, std::int64_t tokens, const Routing& routing, const Fault& fault,
             ExpertRoutes& routes);
  // Throws Error where the linears that read the experts' products need different code formats.
  static void check_readers(const ExpertLinears& experts, std::int64_t count);
  // In a step of many rows: fills `grouped` with the rows of x, grouped by expert, and uses this
  // order in all following operations of these routes. Returns whether it did.
  bool group(const Rows& x, const ExpertRoutes& routes, const Linear& reader, const Rows& grouped);
  // out [R] = the linear of each row's expert; x has one row per token, or one for each of R.
  void multiply(const Rows& x, const ExpertRoutes& routes, const ExpertLinear& linear,
                Epilogue epilogue, const Rows& out);
  // x [T] += weight * products [R].
  void add(const Rows& products, const ExpertRoutes& routes, Rows& x);

 private:
  // The weight segments of all experts of one site.
  struct Table {
    std::vector<const std::uint8_t*> codes;  // per segment: identify the weights
    std::unique_ptr<DeviceScratch> there;
  };
  struct Routed {
    ExpertChoice choice;
    bool in_groups = false;
  };
  const CodeSegment* table(const ExpertLinear& linear, std::int64_t experts);
  const Routed& routed(const ExpertRoutes& routes) const;
  ExpertGroups groups_of(const ExpertRoutes& routes) const;

  int device_;
  rt::Stream& stream_;
  DeviceScratch groups_;                              // ExpertGroups of the layer
  std::map<const ExpertRoutes*, Routed> routed_;      // by address: workspaces never move them
  std::map<std::string, Table, std::less<>> tables_;  // by the first expert's name
};

}  // namespace leq::LEQ_GPU
