#include "quantize/calibration/calibration_data.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/sha256.h"
#include "quantize/calibration/calibration_text.h"

namespace leq {
namespace {

constexpr std::int64_t kFewestTokens = 16;

}  // namespace

CalibrationData calibration_data(const CalibrationRequest& request, const Tokenizer& tokenizer,
                                 std::int64_t context) {
  const bool built_in = request.text.empty();
  const std::string_view text = built_in ? built_in_calibration_text() : request.text;
  CalibrationData data;
  data.source = built_in ? "built-in" : request.source;
  data.text_sha256 = sha256_hex(text);
  data.seed = request.seed;
  const std::vector<Token> ids = tokenizer.encode(text, {.parse_special = false, .add_bos = false});
  const auto tokens = std::ssize(ids);
  require(tokens >= kFewestTokens, data.source, ": ", tokens,
          " tokens, calibration needs at least ", kFewestTokens, "; give a longer text with ",
          Setting{"calibration"});
  const std::int64_t front = tokenizer.add_bos() && tokenizer.bos() != kNoToken ? 1 : 0;
  data.length = std::min({request.length, context, tokens + front});
  if (data.length < request.length) {
    data.note = data.source + " has " + std::to_string(tokens) + " tokens, the model takes " +
                std::to_string(context) + ": windows of " + std::to_string(data.length) +
                " tokens instead of " + std::to_string(request.length);
  }
  const std::int64_t own = data.length - front;  // text tokens per window, without BOS
  Random random(request.seed);
  const std::int64_t places = tokens - own + 1;
  std::set<std::int64_t> starts;
  while (std::ssize(starts) < std::min(request.samples, places)) {
    starts.insert(random.below(static_cast<std::uint32_t>(places)));
  }
  for (const std::int64_t start : starts) {
    std::vector<Token> window;
    if (front > 0) window.push_back(tokenizer.bos());
    window.insert(window.end(), ids.begin() + start, ids.begin() + start + own);
    data.windows.push_back(std::move(window));
  }
  if (std::ssize(data.windows) < request.samples) {
    data.note += data.note.empty() ? data.source + " has " + std::to_string(tokens) + " tokens: "
                                   : std::string(", and ");
    data.note += std::to_string(data.windows.size()) + " different windows instead of " +
                 std::to_string(request.samples);
  }
  return data;
}

std::string_view built_in_calibration_text() {
  static const std::string text = std::string(calibration_prose()) + "\n\n" +
                                  std::string(calibration_articles()) + "\n\n" +
                                  std::string(calibration_stories());
  return text;
}

}  // namespace leq
