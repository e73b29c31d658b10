#include "cuda/host/device_experts.h"

#include <cstring>

#include "backend/checks.h"
#include "base/error.h"
#include "cuda/host/matmul_arguments.h"
#include "cuda/host/row_blocks.h"

namespace leq::LEQ_GPU {
namespace {

void check_routing(const Rows& logits, std::int64_t tokens, const Routing& routing,
                   bool has_shared) {
  require_capacity("router", tokens, logits);
  ensure(logits.width == routing.experts + has_shared && logits.values != nullptr &&
             routing.active >= 1 && routing.active <= routing.experts,
         "router: logits of ", logits.width, " experts, expected ", routing.experts);
  const std::int64_t most = has_shared ? (logits.value_stride - 1) / 3 : logits.value_stride / 2;
  require(routing.experts <= kMaxExperts && routing.active <= most, ErrorKind::bad_setting,
          Setting{"device"}, ": layers with ", routing.experts, " experts, ", routing.active,
          " of a token, expected at most ", kMaxExperts, " and ", most, "; use ", Setting{"device"},
          " cpu");
}

std::vector<CodeSegment> segments_of(const ExpertLinear& linear, std::int64_t experts) {
  const Linear& first = linear(0);
  std::vector<CodeSegment> segments;
  for (std::int64_t e = 0; e < experts; ++e) {
    const Linear& one = linear(e);
    for (std::size_t i = 0; i < one.segments.size(); ++i) {
      const LinearSegment& segment = one.segments[i];
      const LinearSegment& model = first.segments[i];
      require(segment.weight.scheme == model.weight.scheme &&
                  segment.weight.rows == model.weight.rows && one.act == first.act,
              ErrorKind::bad_setting, one.name, ": ", scheme_name(segment.weight.scheme),
              ", other experts of the layer ", scheme_name(model.weight.scheme),
              "; on a GPU they have one type, use ", Setting{"device"}, " cpu");
      segments.push_back({code_weight(segment.weight), segment.bias, segment.weight.rows});
    }
  }
  return segments;
}

}  // namespace

DeviceExperts::DeviceExperts(int device, rt::Stream& stream)
    : device_(device),
      stream_(stream),
      groups_(device, std::size_t{2} * (kMaxExperts + 1) * sizeof(std::int32_t)) {}

void DeviceExperts::route(RoutedLinear a, const Rows& logits, const Routing& routing,
                          ExpertRoutes& routes, ExpertRoutes* shared) {
  const std::int64_t tokens = a.matmul.tokens;
  check_routing(logits, tokens, routing, shared != nullptr);
  const auto set_sizes = [&](ExpertRoutes& of, std::int64_t experts, std::int64_t active) {
    of.tokens = tokens;
    of.first.assign(static_cast<std::size_t>(experts) + 1, 0);
    of.token.resize(static_cast<std::size_t>(tokens * active));
  };
  set_sizes(routes, routing.experts, routing.active);
  routes.experts.clear();
  if (shared != nullptr) {
    set_sizes(*shared, 1, 1);
    shared->experts = {0};
  }
  a.active = static_cast<int>(routing.active);
  a.experts = static_cast<int>(routing.experts);
  a.normalized = routing.normalized;
  a.has_shared = shared != nullptr;
  a.sigmoid = routing.sigmoid;
  a.choice_bias = routing.choice_bias;
  a.sum_offset = routing.sum_offset();
  a.weight_scale = routing.weight_scale;
  a.scales = routing.scales;
  launch_route(a, stream_);
  routed_[&routes] = {{logits.values, logits.value_stride, a.active}};
}

const DeviceExperts::Routed& DeviceExperts::routed(const ExpertRoutes& routes) const {
  const auto found = routed_.find(&routes);
  ensure(found != routed_.end(), "experts: rows that no router of this device sent");
  return found->second;
}

ExpertGroups DeviceExperts::groups_of(const ExpertRoutes& routes) const {
  auto* const first = reinterpret_cast<std::int32_t*>(groups_.data());
  const auto experts = static_cast<int>(std::ssize(routes.first)) - 1;
  return {first, first + kMaxExperts + 1, experts, expert_tile_rows(routes.rows(), experts)};
}

bool DeviceExperts::group(const Rows& x, const ExpertRoutes& routes, const Linear& reader,
                          const Rows& grouped) {
  // With fewer rows, few experts have several, so that reading the weights per row is cheaper; the
  // experts of a single token differ.
  const ExpertGroups groups = groups_of(routes);
  Routed& of = routed_.at(&routes);
  auto a = matmul_arguments<IntMatmul>(reader, routes.tokens, Epilogue::none, grouped);
  a.x = code_rows(x);
  of.in_groups = routes.rows() >= groups.experts && routes.tokens > 1 &&
                 3 * of.choice.active <= of.choice.stride && has_expert_gemm(a);
  if (!of.in_groups) return false;
  require_capacity(reader.name, routes.rows(), grouped);
  ensure(grouped.format == x.format, reader.name, ": rows in groups of another format");
  launch_group_rows({of.choice, routes.rows(), groups}, stream_);
  launch_group_inputs({code_rows(x), code_rows(grouped), of.choice, routes.rows()}, stream_);
  return true;
}

// The weights are compared, because the table may belong to a freed model with the same names.
const CodeSegment* DeviceExperts::table(const ExpertLinear& linear, std::int64_t experts) {
  Table& table = tables_[linear(0).name];
  const std::vector<CodeSegment> segments = segments_of(linear, experts);
  std::vector<const std::uint8_t*> codes;
  for (const CodeSegment& segment : segments) codes.push_back(segment.weight.codes);
  if (table.codes != codes) {
    const std::size_t bytes = segments.size() * sizeof(CodeSegment);
    rt::synchronize(stream_);  // earlier steps may still read the old table
    table.there = std::make_unique<DeviceScratch>(device_, bytes);
    const Pinned host(bytes);
    std::memcpy(host.data(), segments.data(), bytes);
    rt::copy_to_device(table.there->data(), host.data(), bytes, stream_);
    rt::synchronize(stream_);
    table.codes = std::move(codes);
  }
  return reinterpret_cast<const CodeSegment*>(table.there->data());
}

void DeviceExperts::check_readers(const ExpertLinears& experts, std::int64_t count) {
  for (std::int64_t e = 0; e < count; ++e) {
    const RowsConsumer reader = experts.down(e);
    require(reader.inv_smooth == nullptr && reader.act_scale == 0, ErrorKind::bad_setting,
            experts.gate_up(e).name, ": factors or scales of one expert's products, which run on ",
            "the CPU only; quantize with ", Setting{"act"}, " g128, or use ", Setting{"device"},
            " cpu");
  }
}

ExpertMatmul DeviceExperts::matmul_of(const Rows& x, const ExpertRoutes& routes,
                                      const ExpertLinear& linear, Epilogue epilogue,
                                      const Rows& out) {
  const bool paired = epilogue.is_gated();
  ExpertMatmul a;
  a.matmul =
      matmul_arguments<IntMatmul>(linear(0), paired ? routes.tokens : routes.rows(), epilogue, out);
  if (a.matmul.segments[0].rows == 0) return a;  // this rank has no outputs
  a.matmul.x = code_rows(x);
  a.segments = table(linear, std::ssize(routes.first) - 1);
  a.choice = routed(routes).choice;
  a.rows = routes.rows();
  a.has_row_each = !paired;
  a.in_groups = routed(routes).in_groups;
  return a;
}

bool DeviceExperts::launch_groups(const ExpertMatmul& a, const ExpertRoutes& routes) {
  const bool in_groups = a.in_groups && has_expert_gemm(a.matmul);
  if (in_groups) launch_expert_gemm(a, groups_of(routes), stream_);
  return in_groups;
}

bool DeviceExperts::multiply(const Rows& x, const ExpertRoutes& routes, const ExpertLinear& linear,
                             Epilogue epilogue, const Rows& out,
                             const std::function<OutputCodes()>& codes) {
  ExpertMatmul a = matmul_of(x, routes, linear, epilogue, out);
  if (a.rows == 0 || launch_groups(a, routes)) return false;
  if (makes_codes(a)) a.matmul.codes = codes();
  launch_expert_matmul(a, stream_);
  return a.matmul.codes.exist();
}

bool DeviceExperts::multiply_and_add(const Rows& x, const ExpertRoutes& routes,
                                     const ExpertLinear& linear, const Rows& out,
                                     const AddExpertsArguments& sum, unsigned* tickets) {
  ExpertMatmul a = matmul_of(x, routes, linear, Epilogue::none, out);
  if (a.rows == 0 || launch_groups(a, routes)) return false;
  if (!sum.has_shared && adds(a)) {
    a.add = sum;
    a.add_tickets = tickets;
  }
  launch_expert_matmul(a, stream_);
  return a.add_tickets != nullptr;
}

AddExpertsArguments DeviceExperts::sum_of(const Rows& products, const ExpertRoutes& routes,
                                          bool has_shared, bool fresh, Rows& x) const {
  const auto& [choice, in_groups] = routed(routes);
  return {float_rows(x), float_rows(products), choice,  in_groups,
          has_shared,    routes.tokens,        x.width, fresh};
}

}  // namespace leq::LEQ_GPU
