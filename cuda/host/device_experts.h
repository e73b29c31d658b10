// The experts of a backend: tables of their weights on the device, and launches of their linears.
#pragma once

#include <cstdint>
#include <functional>
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

  // Implements Operations::route; `a` has the router's linear. The chosen experts overwrite the
  // logits in device memory. On the host only the sizes in `routes` are set.
  void route(RoutedLinear a, const Rows& logits, const Routing& routing, ExpertRoutes& routes,
             ExpertRoutes* shared);
  // Throws Error if the linears that read the experts' products need different code formats.
  static void check_readers(const ExpertLinears& experts, std::int64_t count);
  // In a step with many rows, copies the rows of x to `grouped`, grouped by expert; all following
  // operations with these routes use this order. Returns whether rows were grouped.
  bool group(const Rows& x, const ExpertRoutes& routes, const Linear& reader, const Rows& grouped);
  // out [R] = the linear of each row's expert. x has one row per token, or one per row of out. If
  // the kernel can quantize its outputs, asks `codes` how; returns whether it did.
  bool multiply(const Rows& x, const ExpertRoutes& routes, const ExpertLinear& linear,
                Epilogue epilogue, const Rows& out, const std::function<OutputCodes()>& codes);
  // The same for the experts' down, which also computes `sum` if its kernel can; returns whether it
  // did.
  bool multiply_and_add(const Rows& x, const ExpertRoutes& routes, const ExpertLinear& linear,
                        const Rows& out, const AddExpertsArguments& sum, unsigned* tickets);
  // The addition of weight * products [R] to x [T], or to 0 if it is fresh; with a shared expert
  // products are [R + T].
  AddExpertsArguments sum_of(const Rows& products, const ExpertRoutes& routes, bool has_shared,
                             bool fresh, Rows& x) const;

 private:
  // The weight segments of all experts of one site on the device.
  struct Table {
    std::vector<const std::uint8_t*> codes;  // of each segment, to detect other weights
    std::unique_ptr<DeviceScratch> there;
  };
  struct Routed {
    ExpertChoice choice;
    bool in_groups = false;
  };
  ExpertMatmul matmul_of(const Rows& x, const ExpertRoutes& routes, const ExpertLinear& linear,
                         Epilogue epilogue, const Rows& out);
  // Returns whether it launched a kernel for rows in groups.
  bool launch_groups(const ExpertMatmul& a, const ExpertRoutes& routes);
  const CodeSegment* table(const ExpertLinear& linear, std::int64_t experts);
  const Routed& routed(const ExpertRoutes& routes) const;
  ExpertGroups groups_of(const ExpertRoutes& routes) const;

  int device_;
  rt::Stream& stream_;
  DeviceScratch groups_;                              // holds ExpertGroups of the current layer
  std::map<const ExpertRoutes*, Routed> routed_;      // by address, which workspaces never change
  std::map<std::string, Table, std::less<>> tables_;  // by name of the first expert
};

}  // namespace leq::LEQ_GPU
