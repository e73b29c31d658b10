#include "format/unique_keys.h"

#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace leq {
namespace {

// Events of nlohmann's parser; all but keys and the ends of objects pass by.
class KeyWatcher : public nlohmann::json_sax<Json> {
 public:
  explicit KeyWatcher(std::string_view source) : source_(source) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool start_object(std::size_t) override {
    require(keys_.size() < kMaxJsonDepth, source_, ": JSON nested deeper than ", kMaxJsonDepth);
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    require(keys_.back().insert(name).second, source_, ": the name \"", printable(name),
            "\" stands twice");
    require(keys_.back().size() <= kMaxKeys, source_, ": more than ", kMaxKeys,
            " names in one JSON object");
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  std::string_view source_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

void require_unique_keys(std::string_view text, std::string_view source) {
  KeyWatcher watcher(source);
  Json::sax_parse(text.begin(), text.end(), &watcher);
}

}  // namespace leq
