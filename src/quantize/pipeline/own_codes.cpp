#include "quantize/pipeline/own_codes.h"

#include <algorithm>
#include <atomic>

namespace leq {
namespace {

constexpr std::int64_t kRowsOfTask = 4 * kPanelRows;  // a multiple of panels

void append_plane(std::vector<std::byte>& to, std::vector<std::byte>& from) {
  to.insert(to.end(), from.begin(), from.end());
  from = {};
}

// Concatenates the planes of parts that consist of whole panels. In the result, the second plane of
// codes follows the complete first one.
PackedWeight join_panels(std::vector<PackedWeight>& parts, std::int64_t rows) {
  std::vector<std::byte> high;
  for (PackedWeight& part : parts) {
    const CodePlanes planes = code_planes(part.scheme, part.rows, part.columns);
    if (planes.high_bits == 0) continue;
    high.insert(high.end(), part.codes.begin() + planes.high_at, part.codes.end());
    part.codes.resize(static_cast<std::size_t>(planes.high_at));
  }
  PackedWeight whole = std::move(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    append_plane(whole.codes, parts[i].codes);
    append_plane(whole.scales, parts[i].scales);
    append_plane(whole.zeros, parts[i].zeros);
    append_plane(whole.sums, parts[i].sums);
  }
  append_plane(whole.codes, high);
  whole.rows = rows;
  return whole;
}

}  // namespace

std::optional<QuantizedTensor> carry_codes(const TensorInput& tensor, const TensorPlan& plan,
                                           ThreadPool& pool) {
  if (!tensor.read_codes || plan.method != nullptr || !plan.label.empty() ||
      !plan.scheme.is_integer() || tensor.shape.size() != 2) {
    return std::nullopt;
  }
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t columns = tensor.shape[1];
  std::vector<PackedWeight> parts(static_cast<std::size_t>((rows + kRowsOfTask - 1) / kRowsOfTask));
  std::atomic<bool> exact = true;
  // One buffer per thread, because allocating one per task would map its pages again each time.
  std::vector<ChosenCodes> codes_of(static_cast<std::size_t>(pool.threads()));
  pool.run(std::ssize(parts), [&](std::int64_t task, int worker) {
    if (!exact) return;
    const std::int64_t first = task * kRowsOfTask;
    const std::int64_t count = std::min(kRowsOfTask, rows - first);
    ChosenCodes& codes = codes_of[static_cast<std::size_t>(worker)];
    if (!tensor.read_codes(plan.scheme, first, count, codes)) {
      exact = false;
      return;
    }
    parts[static_cast<std::size_t>(task)] =
        pack_codes(codes, count, columns, plan.scheme, plan.act);
  });
  if (!exact) return std::nullopt;
  QuantizedTensor result;
  result.weight = join_panels(parts, rows);
  result.record.method = "source";
  result.record.online_mode = plan.online_mode;
  return result;
}

}  // namespace leq
