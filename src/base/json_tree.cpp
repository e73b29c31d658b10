#include "base/json_tree.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json_events.h"
#include "base/text.h"

namespace leq {

class JsonTreeBuilder : public JsonEvents {
 public:
  JsonTreeBuilder(JsonTree& tree, std::string_view source)
      : values_(tree.values_), source_(source) {}

  void leaf(Json value) override { add(std::move(value)); }
  void open(Json::Type type) override {
    const std::uint32_t index = add(type == Json::Type::array ? Json::array() : Json::object());
    open_.push_back({index, JsonTree::kNone});
  }
  void key(std::string name) override { key_ = std::move(name); }
  void close() override {
    check_names(open_.back().index);
    open_.pop_back();
  }

 private:
  struct Open {
    std::uint32_t index, last;
  };

  std::uint32_t add(Json leaf) {
    const auto index = static_cast<std::uint32_t>(values_.size());
    values_.push_back({.leaf = std::move(leaf), .key = std::exchange(key_, {})});
    if (open_.empty()) return index;
    Open& parent = open_.back();
    ++values_[parent.index].size;
    if (parent.last == JsonTree::kNone) {
      values_[parent.index].first = index;
    } else {
      values_[parent.last].next = index;
    }
    parent.last = index;
    return index;
  }

  void check_names(std::uint32_t object) {
    if (!values_[object].leaf.is_object()) return;
    names_.clear();
    for (std::uint32_t at = values_[object].first; at != JsonTree::kNone; at = values_[at].next) {
      names_.push_back(values_[at].key);
    }
    std::ranges::sort(names_);
    const auto twice = std::ranges::adjacent_find(names_);
    require(twice == names_.end(), source_, ": duplicate key \"",
            twice == names_.end() ? std::string() : printable(*twice), "\"");
  }

  std::vector<JsonTree::Value>& values_;
  std::vector<Open> open_;
  std::string key_;
  std::vector<std::string_view> names_;
  std::string_view source_;
};

JsonTree parse_json_tree(std::string_view text, std::string_view source, const JsonLimits& limits) {
  JsonTree tree;
  JsonTreeBuilder builder(tree, source);
  read_json(text, source, limits, builder);
  return tree;
}

Json::Type JsonNode::type() const {
  ensure(tree_ != nullptr, "JSON: the type of a value that is absent");
  return tree_->values_[index_].leaf.type();
}

const char* JsonNode::type_name() const {
  return tree_ == nullptr ? "absent" : tree_->values_[index_].leaf.type_name();
}

Json JsonNode::leaf() const {
  require(tree_ != nullptr, "JSON: a value is absent");
  return tree_->values_[index_].leaf;
}

bool JsonNode::boolean() const { return leaf().get<bool>(); }
double JsonNode::number() const { return leaf().get<double>(); }

std::optional<std::int64_t> JsonNode::whole() const {
  if (!is_number()) return std::nullopt;
  const Json& number = tree_->values_[index_].leaf;
  constexpr double kPast = 0x1p63;
  if (number.is_number_float()) {
    const double value = number.get<double>();
    if (value != std::floor(value) || value < -kPast || value >= kPast) return std::nullopt;
  } else if (number.is_number_unsigned() && number.get<std::uint64_t>() >> 63 != 0) {
    return std::nullopt;
  }
  return number.get<std::int64_t>();
}

const std::string& JsonNode::text() const {
  require(tree_ != nullptr, "JSON: a value is absent");
  return tree_->values_[index_].leaf.text();
}

const std::string& JsonNode::key() const {
  ensure(tree_ != nullptr, "JSON: the name of a value that is absent");
  return tree_->values_[index_].key;
}

std::size_t JsonNode::size() const { return tree_ == nullptr ? 0 : tree_->values_[index_].size; }

JsonNode JsonNode::first() const {
  if (size() == 0) return {};
  return {tree_, tree_->values_[index_].first};
}

JsonNode JsonNode::next() const {
  ensure(tree_ != nullptr, "JSON: what follows a value that is absent");
  const std::uint32_t next = tree_->values_[index_].next;
  return next == JsonTree::kNone ? JsonNode() : JsonNode(tree_, next);
}

JsonNode JsonNode::last() const {
  JsonNode last;
  for (JsonNode one = first(); one; one = one.next()) last = one;
  return last;
}

JsonNode JsonNode::find(std::string_view name) const {
  if (!is_object()) return {};
  JsonNode member = first();
  while (member && member.key() != name) member = member.next();
  return member;
}

std::string JsonNode::dump() const {
  std::string out;
  std::vector<JsonNode> open;
  JsonNode at = *this;
  while (at) {
    if (!open.empty() && open.back().is_object()) out += Json(at.key()).dump_any() + ":";
    if (at.size() > 0) {
      out += at.is_array() ? '[' : '{';
      open.push_back(at);
      at = at.first();
      continue;
    }
    out += at.leaf().dump_any();
    while (!open.empty() && !at.next()) {
      at = open.back();
      open.pop_back();
      out += at.is_array() ? ']' : '}';
    }
    if (open.empty()) break;
    out += ',';
    at = at.next();
  }
  return out;
}

}  // namespace leq
