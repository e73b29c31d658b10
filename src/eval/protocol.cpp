#include "eval/protocol.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::int64_t kLongestDefaultWindow = 2048;
constexpr std::int64_t kDefaultStride = 512;
constexpr std::int64_t kLlamacppWindow = 512;

struct ProtocolRow {
  Protocol protocol;
  std::string_view name;
  Join join;
  std::string_view meaning;
};
constexpr std::array<ProtocolRow, 3> kProtocols = {{
    {Protocol::hf, "hf", Join::hf, "side by side, each scored from its second token on"},
    {Protocol::hf_stride, "hf-stride", Join::hf, "overlapping, each token scored once"},
    {Protocol::llamacpp_512, "llamacpp-512", Join::none,
     "side by side, BOS first where the model has one, the second half scored"},
}};

const ProtocolRow& row_of(Protocol protocol) {
  return *std::ranges::find(kProtocols, protocol, &ProtocolRow::protocol);
}

const ProtocolRow& row_of(std::string_view name) {
  const auto* found = std::ranges::find(kProtocols, name, &ProtocolRow::name);
  require(found != kProtocols.end(), Setting{"protocol"},
          ": expected hf | hf-stride | llamacpp-512, found '", printable(name), "'");
  return *found;
}

Join resolve_join(const ProtocolRequest& request, const ProtocolRow& row) {
  if (!request.join) return row.join;
  const bool hf = *request.join == "hf";
  require(hf || *request.join == "none", Setting{"join"}, ": expected hf | none, found '",
          printable(*request.join), "'");
  require(!hf || row.protocol != Protocol::llamacpp_512, Setting{"join"},
          " hf: protocol llamacpp-512 takes the file as it is; leave ", Setting{"join"}, " out");
  return hf ? Join::hf : Join::none;
}

std::int64_t resolve_window(const ProtocolRequest& request, const ProtocolRow& row,
                            std::int64_t context) {
  if (row.protocol == Protocol::llamacpp_512) {
    require(request.window.value_or(kLlamacppWindow) == kLlamacppWindow, Setting{"window"}, " ",
            request.window.value_or(0), ": protocol llamacpp-512 has windows of 512; leave ",
            Setting{"window"}, " out");
    require(context >= kLlamacppWindow, Setting{"protocol"},
            " llamacpp-512: needs windows of 512, the model has a context of ", context);
    return kLlamacppWindow;
  }
  const std::int64_t window = request.window.value_or(std::min(context, kLongestDefaultWindow));
  require(window >= 2 && window <= context, Setting{"window"}, " ", window,
          ": expected 2 to the model's context of ", context);
  return window;
}

std::int64_t resolve_stride(const ProtocolRequest& request, const ProtocolRow& row,
                            std::int64_t window) {
  if (row.protocol != Protocol::hf_stride) {
    require(!request.stride || *request.stride == window, Setting{"stride"}, " ",
            request.stride.value_or(0), ": protocol ", row.name, " has none; use ",
            Setting{"protocol"}, " hf-stride");
    return window;
  }
  const std::int64_t stride =
      request.stride.value_or(window < 2 * kDefaultStride ? window / 2 : kDefaultStride);
  require(stride >= 1 && stride <= window, Setting{"stride"}, " ", stride,
          ": expected 1 to the window of ", window);
  return stride;
}

}  // namespace

std::string_view protocol_name(Protocol protocol) { return row_of(protocol).name; }

ProtocolSettings resolve_protocol(const ProtocolRequest& request, std::int64_t context) {
  const ProtocolRow& row = row_of(request.protocol);
  ProtocolSettings settings;
  settings.protocol = row.protocol;
  settings.join = resolve_join(request, row);
  settings.window = resolve_window(request, row, context);
  settings.stride = resolve_stride(request, row, settings.window);
  require(request.chunks >= 0, Setting{"chunks"}, " ", request.chunks,
          ": expected 0 (all) or more");
  settings.chunks = request.chunks;
  return settings;
}

std::vector<Window> plan_windows(const ProtocolSettings& settings, std::int64_t tokens,
                                 std::string_view text) {
  require(tokens >= settings.window, text, " has ", tokens, " tokens, one window has ",
          settings.window, "; take a longer text or a smaller ", Setting{"window"});
  std::vector<Window> windows;
  std::int64_t scored_to = 0;  // all tokens before this index are scored
  for (std::int64_t first = 0; scored_to < tokens; first += settings.stride) {
    if (settings.chunks > 0 && std::ssize(windows) == settings.chunks) break;
    const std::int64_t end = std::min(first + settings.window, tokens);
    // With disjoint windows, a last window that would be shorter is dropped.
    if (settings.protocol != Protocol::hf_stride && end - first < settings.window) break;
    std::int64_t scored_from = std::max(first + 1, scored_to);
    if (settings.protocol == Protocol::llamacpp_512) scored_from = first + settings.window / 2 + 1;
    if (scored_from < end) windows.push_back({first, end - first, scored_from});
    scored_to = end;
  }
  return windows;
}

std::string describe(const ProtocolSettings& settings) {
  std::string out = std::string(protocol_name(settings.protocol)) + ": windows of " +
                    std::to_string(settings.window) + " tokens";
  if (settings.protocol == Protocol::hf_stride) {
    out += " every " + std::to_string(settings.stride);
  }
  out += ", " + std::string(row_of(settings.protocol).meaning) + "; ";
  return out + (settings.join == Join::hf ? "rows joined by two newlines (join hf)"
                                          : "the text as it is (join none)");
}

}  // namespace leq
