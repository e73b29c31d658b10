#include "quantize/calibration/calibration_data.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

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

namespace {

// Reads or writes one window of the file, with as many system calls as necessary.
template <typename Bytes, typename Transfer>
void transfer_all(const std::filesystem::path& file, Bytes bytes, std::int64_t window,
                  const char* what, const Transfer& transfer) {
  auto offset = static_cast<off_t>(window) * static_cast<off_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t done = transfer(bytes, offset);
    if (done < 0 && errno == EINTR) continue;
    require(done > 0, ErrorKind::io, file.string(), ": cannot ", what, ": ", std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

}  // namespace

HiddenStates::HiddenStates(std::int64_t windows, std::int64_t numbers,
                           const std::filesystem::path& file)
    : windows_(windows), numbers_(numbers), file_(file) {
  if (file.empty()) {
    memory_.resize(static_cast<std::size_t>(windows * numbers));
    return;
  }
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(descriptor_ >= 0, ErrorKind::io, file.string(),
          ": cannot be made: ", std::strerror(errno));
  ::unlink(file.c_str());
  const auto bytes = static_cast<off_t>(windows * numbers) * static_cast<off_t>(sizeof(float));
  const int error = ::posix_fallocate(descriptor_, 0, bytes);
  if (error == 0) return;
  ::close(descriptor_);
  fail(ErrorKind::io, file.string(), ": no room for the ", bytes,
       " bytes of the hidden states: ", std::strerror(error), "; raise ", Setting{"max_ram"},
       " or take fewer ", Setting{"samples"});
}

HiddenStates::~HiddenStates() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void HiddenStates::read(std::int64_t window, std::span<float> out) const {
  ensure(std::ssize(out) == numbers_, "hidden states: room for ", out.size(), " numbers of ",
         numbers_);
  if (descriptor_ < 0) {
    std::copy_n(memory_.begin() + window * numbers_, numbers_, out.begin());
    return;
  }
  transfer_all(file_, std::as_writable_bytes(out), window, "read", [&](auto part, off_t offset) {
    return ::pread(descriptor_, part.data(), part.size(), offset);
  });
}

void HiddenStates::write(std::int64_t window, std::span<const float> values) {
  ensure(std::ssize(values) == numbers_, "hidden states: ", values.size(), " numbers, expected ",
         numbers_);
  if (descriptor_ < 0) {
    std::copy(values.begin(), values.end(), memory_.begin() + window * numbers_);
    return;
  }
  transfer_all(file_, std::as_bytes(values), window, "write", [&](auto part, off_t offset) {
    return ::pwrite(descriptor_, part.data(), part.size(), offset);
  });
}

}  // namespace leq
