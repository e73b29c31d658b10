#include "backend/kv_types.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"f32", "f16", "int8"};

// What users of other engines type, and the closest type here.
struct Alias {
  std::string_view name;
  std::string_view closest;
};
constexpr std::array<Alias, 8> kAliases = {{{"q8_0", "int8"},
                                            {"q8", "int8"},
                                            {"q5_1", "int8"},
                                            {"q5_0", "int8"},
                                            {"q4_1", "int8"},
                                            {"q4_0", "int8"},
                                            {"iq4_nl", "int8"},
                                            {"bf16", "f16"}}};

}  // namespace

std::string_view kv_type_name(KvType type) { return kNames[static_cast<std::size_t>(type)]; }

KvType parse_kv_type(std::string_view name, Setting setting) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<KvType>(found - kNames.begin());
  for (const Alias& alias : kAliases) {
    require(alias.name != name, setting, " ", name, ": expected f32, f16 or int8; the closest is ",
            alias.closest);
  }
  fail(setting, " ", name, ": expected f32, f16 or int8");
}

std::int64_t BatchView::end_position() const {
  std::int64_t end = 0;
  for (const SequenceRun& run : runs) end = std::max(end, run.end_position());
  return end;
}

}  // namespace leq
