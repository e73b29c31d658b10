#include "backend/kv_types.h"

#include <algorithm>

#include "base/error.h"

namespace leq {
namespace {

// "f32, f16 or int8"
std::string expected_names() {
  std::string names;
  for (std::size_t i = 0; i < kKvSchemes.size(); ++i) {
    names += i == 0 ? "" : i + 1 == kKvSchemes.size() ? " or " : ", ";
    names += kKvSchemes[i].name;
  }
  return names;
}

}  // namespace

std::string_view kv_type_name(KvType type) { return kv_scheme(type).name; }

std::string kv_type_names(std::string_view separator) {
  std::string names;
  for (const KvScheme& scheme : kKvSchemes) {
    if (!names.empty()) names += separator;
    names += scheme.name;
  }
  return names;
}

KvType parse_kv_type(std::string_view name, Setting setting) {
  for (const KvScheme& scheme : kKvSchemes) {
    if (scheme.name == name) return scheme.type;
  }
  std::string closest;
  for (const KvScheme& scheme : kKvSchemes) {
    const bool alias =
        !name.empty() && std::ranges::find(scheme.aliases, name) != scheme.aliases.end();
    if (alias) closest = "; the closest is " + std::string(scheme.name);
  }
  fail(setting, " ", name, ": expected ", expected_names(), closest);
}

KvType with_kv_block(KvType type, std::int64_t block, Setting setting) {
  const KvScheme& wanted = kv_scheme(type);
  if (!wanted.blocked()) return type;
  for (const KvScheme& scheme : kKvSchemes) {
    if (scheme.keys == wanted.keys && scheme.bits == wanted.bits && scheme.block == block) {
      return scheme.type;
    }
  }
  fail(ErrorKind::bad_setting, setting, " ", block, ": expected 32 or 64");
}

std::int64_t BatchView::end_position() const {
  std::int64_t end = 0;
  for (const SequenceRun& run : runs) end = std::max(end, run.end_position());
  return end;
}

}  // namespace leq
