#include "backend/kv_types.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

std::vector<std::string_view> named_types() {
  std::vector<std::string_view> names;
  for (const KvScheme& scheme : kKvSchemes) {
    if (!scheme.by_option) names.push_back(scheme.name);
  }
  return names;
}

// "f32, f16 or int8"
std::string expected_names() {
  const std::vector<std::string_view> all = named_types();
  std::string names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    names += i == 0 ? "" : i + 1 == all.size() ? " or " : ", ";
    names += all[i];
  }
  return names;
}

// The row that is alike but for its name; nullopt where there is none.
std::optional<KvType> row_like(const KvScheme& wanted) {
  const auto facts = [](const KvScheme& s) {
    return std::tuple(s.bits, s.keys, s.values, s.group, s.block, s.recent, s.rotated, s.plain,
                      s.before_rope);
  };
  for (const KvScheme& scheme : kKvSchemes) {
    if (facts(scheme) == facts(wanted)) return scheme.type;
  }
  return std::nullopt;
}

}  // namespace

std::string_view kv_type_name(KvType type) { return kv_scheme(type).name; }

std::string kv_type_names(std::string_view separator) {
  std::string names;
  for (const std::string_view name : named_types()) {
    if (!names.empty()) names += separator;
    names += name;
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
  KvScheme wanted = kv_scheme(type);
  if (!wanted.blocked()) return type;
  wanted.block = static_cast<int>(std::clamp<std::int64_t>(block, 0, 1 << 20));
  const auto found = row_like(wanted);
  require(found.has_value(), ErrorKind::bad_setting, setting, " ", block, ": expected 32 or 64");
  return *found;
}

KvType with_kv_rope(KvType type, KvRope rope) {
  KvScheme wanted = kv_scheme(type);
  wanted.before_rope = rope == KvRope::pre;
  return row_like(wanted).value_or(type);
}

KvType with_kv_hadamard(KvType type, KvHadamard hadamard) {
  KvScheme wanted = kv_scheme(type);
  wanted.rotated = hadamard == KvHadamard::on;
  wanted.plain = hadamard == KvHadamard::off;
  return row_like(wanted).value_or(type);
}

std::int64_t BatchView::end_position() const {
  std::int64_t end = 0;
  for (const SequenceRun& run : runs) end = std::max(end, run.end_position());
  return end;
}

}  // namespace leq
