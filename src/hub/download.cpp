// Downloads files of a repository into the hub's cache.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/bytes.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/arrivals.h"
#include "hub/hub.h"
#include "hub/requests.h"
#include "hub/web_client.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFailures = 5;  // in a row without a new byte
constexpr int kMaxRedirects = 5;
constexpr std::uint64_t kHeaderBytes = 256u << 10;  // those of most headers of safetensors

// An ETag without quotes and the mark of weak ones.
std::string plain_etag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return etag;
}

bool is_file_name(const std::string& text) {
  return !text.empty() && text.size() <= 200 && text.front() != '.' &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && std::ranges::all_of(text, [](unsigned char c) {
           return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
         });
}

std::uint64_t bytes_of(const fs::path& file) {
  std::error_code missing;
  const std::uintmax_t bytes = fs::file_size(file, missing);
  return missing ? 0 : bytes;
}

// Whether a part of a file, which may be empty, has a header's length and as much of its JSON as is
// there. Other beginnings, such as zeros, stay after a crash; they would be read before the file's
// checksum is known.
bool may_begin_safetensors(int descriptor) {
  constexpr std::uint64_t kMaxHeaderBytes = 100u << 20;
  std::array<std::byte, sizeof(std::uint64_t)> first = {};
  if (::pread(descriptor, first.data(), first.size(), 0) != std::ssize(first)) return true;
  const auto bytes = ByteReader(first, "").read<std::uint64_t>("the header's length");
  if (bytes < 2 || bytes > kMaxHeaderBytes) return false;
  std::string header(bytes, '\0');
  const auto have = ::pread(descriptor, header.data(), bytes, first.size());
  if (have <= 0) return true;
  header.resize(static_cast<std::size_t>(have));
  if (header.size() < bytes) return header[0] == '{' && header.find('\0') == header.npos;
  try {
    return parse_json(header, "").is_object();
  } catch (const Error&) {
    return false;
  }
}

// "https://host/a/b" -> "https://host"
std::string origin_of(const std::string& url) {
  const auto host = url.find("://");
  return url.substr(0, url.find('/', host == url.npos ? 0 : host + 3));
}

// The metadata of a file are in the first answer that is no redirect within the hub; that to the
// store of large files is another host's, or has the size and hash of the file.
WebResponse head_of(WebClient& client, std::string url, const std::string& token,
                    const HubEvents& events) {
  for (int redirects = 0;; ++redirects) {
    WebResponse response =
        send_patiently(client, {.url = url, .token = token, .head = true}, events.say);
    const std::string target = response.header("location");
    const bool within = response.status >= 300 && response.status < 400 &&
                        target.starts_with('/') && response.header("x-linked-etag").empty();
    if (!within || redirects == kMaxRedirects) return response;
    url = origin_of(url) + target;
  }
}

constexpr int kAppends = O_RDWR | O_CREAT | O_APPEND;

void write_all(int descriptor, std::span<const std::byte> bytes, const fs::path& file) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    require(wrote > 0, ErrorKind::io, file.string(), ": ", std::strerror(errno),
            "; free some space, and the same command continues");
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
}

}  // namespace

// A file's content in the cache.
struct Hub::Blob {
  std::string name;  // "model.safetensors"
  std::string what;  // "Qwen/Qwen3-0.6B: model.safetensors"
  std::string url;
  std::string etag;
  fs::path path, incomplete;
  std::uint64_t bytes = 0;     // 0: not known
  std::uint64_t reported = 0;  // those that are there
  std::shared_ptr<FileLock> lock;
};

void Hub::report(Blob& blob, std::uint64_t have) {
  done_ += have - blob.reported;
  blob.reported = have;
  events_.progress(std::min(done_, total_), total_);
  if (arrivals_ != nullptr) arrivals_->set_bytes(blob.name, have);
}

// Empties a file of which other bytes are here than the hub has.
void Hub::start_again(Blob& blob, int descriptor) {
  report(blob, 0);
  const bool emptied = ::ftruncate(descriptor, 0) == 0;  // before errno is read
  require(emptied, ErrorKind::io, blob.incomplete.string(), ": ", std::strerror(errno));
}

void Hub::check_space(const HubRepository& repository, const std::vector<HubFile>& missing,
                      std::uint64_t bytes_beside) const {
  const fs::path blobs = folder(repository.name) / "blobs";
  std::uint64_t need = bytes_beside;
  for (const HubFile& file : missing) {
    std::uint64_t here = 0;
    if (is_sha256(file.sha256)) {
      here =
          std::max(bytes_of(blobs / file.sha256), bytes_of(blobs / (file.sha256 + ".incomplete")));
    }
    need += file.bytes - std::min(file.bytes, here);
  }
  std::error_code unknown;
  const fs::space_info space = fs::space(blobs, unknown);
  require(unknown || need <= space.available, ErrorKind::io, repository.name, ": needs ",
          human_bytes(need), " for downloads and the model made of them, and only ",
          human_bytes(space.available), " are free in ", settings_.cache.string(),
          "; free some space, or set HF_HOME to a folder on another disk");
}

fs::path Hub::snapshot(const HubRepository& repository) const {
  return folder(repository.name) / "snapshots" / repository.commit;
}

std::vector<HubFile> Hub::missing(const HubRepository& repository,
                                  const std::vector<HubFile>& files) const {
  std::vector<HubFile> missing;
  std::ranges::copy_if(files, std::back_inserter(missing), [&](const HubFile& file) {
    return !file_exists(snapshot(repository) / file.name);
  });
  return missing;
}

fs::path Hub::fetch(const HubRepository& repository, const std::vector<HubFile>& files,
                    std::uint64_t bytes_beside, Arrivals* arrivals) {
  std::vector<HubFile> missing = this->missing(repository, files);
  if (arrivals != nullptr) {  // also files that another program has completed since
    missing.clear();
    std::ranges::copy_if(files, std::back_inserter(missing), [&](const HubFile& file) {
      return arrivals->bytes(file.name).has_value();
    });
  }
  if (missing.empty()) {
    keep_ref(repository);
    return snapshot(repository);
  }
  require(!settings_.offline, ErrorKind::io, repository.name, ": ", missing.front().name,
          " is not in ", settings_.cache.string(), ", and ", Setting{"offline"},
          " or HF_HUB_OFFLINE forbids downloads");
  fs::create_directories(folder(repository.name) / "blobs");
  check_space(repository, missing, bytes_beside);
  done_ = total_ = 0;
  arrivals_ = arrivals;
  for (const HubFile& file : missing) total_ += file.bytes;
  // Files that are read meanwhile stay locked, so that no other program writes them anew.
  std::vector<Blob> begun;
  for (const HubFile& file : missing) {
    if (arrivals == nullptr) break;
    begun.push_back(lock_blob(repository, file, begun));
    if (missing.size() > 1) fetch_header(begun.back());
  }
  for (std::size_t i = 0; i < missing.size(); ++i) {
    Blob blob = arrivals != nullptr ? std::move(begun[i]) : lock_blob(repository, missing[i], {});
    finish_file(repository, missing[i], blob);
  }
  keep_ref(repository);
  return snapshot(repository);
}

Hub::Blob Hub::find_blob(const HubRepository& repository, const HubFile& file) {
  Blob blob;
  blob.name = file.name;
  blob.what = repository.name + ": " + file.name;
  blob.url = settings_.endpoint + "/" + url_path(repository.name) + "/resolve/" +
             repository.commit + "/" + url_path(file.name);
  const WebResponse head = head_of(client(), blob.url, settings_.token, events_);
  if (head.status == 404 && head.header("x-repo-commit") == repository.commit) {
    const fs::path marker = folder(repository.name) / ".no_exist" / repository.commit / file.name;
    fs::create_directories(marker.parent_path());
    const Descriptor made(marker, kAppends);
  }
  require_success(head, blob.what, blob.url, !settings_.token.empty());
  const std::string linked = head.header("x-linked-etag");
  blob.etag = plain_etag(linked.empty() ? head.header("etag") : linked);
  require(is_file_name(blob.etag), ErrorKind::io, blob.what, ": ", blob.url, ": the answer has no ",
          "valid ETag; it is not a hub's, or a proxy changed it");
  require(!is_sha256(file.sha256) || blob.etag == file.sha256, ErrorKind::io, blob.what,
          ": the hub lists SHA-256 ", file.sha256, " and sends the file ", blob.etag);
  const bool moved = head.status >= 300;
  const std::string size =
      linked.empty() && !moved ? head.header("content-length") : head.header("x-linked-size");
  const std::int64_t said = parse_int(size).value_or(static_cast<std::int64_t>(file.bytes));
  require(said >= 0, ErrorKind::io, blob.what, ": ", blob.url, ": the answer has the size ", said);
  blob.bytes = static_cast<std::uint64_t>(said);
  blob.path = folder(repository.name) / "blobs" / blob.etag;
  blob.incomplete = fs::path(blob.path.string() + ".incomplete");
  return blob;
}

Hub::Blob Hub::lock_blob(const HubRepository& repository, const HubFile& file,
                         const std::vector<Blob>& held) {
  Blob blob = find_blob(repository, file);
  const auto same = std::ranges::find(held, blob.etag, &Blob::etag);
  if (same != held.end()) {
    blob.lock = same->lock;
  } else {
    blob.lock = std::make_shared<FileLock>(
        settings_.cache / ".locks" / folder(repository.name).filename() / (blob.etag + ".lock"),
        [&] { events_.say(blob.what + ": another program downloads it; waiting"); });
  }
  if (arrivals_ == nullptr) return blob;
  if (file_exists(blob.path)) {
    arrivals_->open(blob.name, blob.path);
    report(blob, file.bytes);
  } else {
    const Descriptor part(blob.incomplete, kAppends);
    if (file.name.ends_with(".safetensors") && !may_begin_safetensors(part.get())) {
      events_.say(blob.what + ": what an earlier download left is no beginning of it");
      start_again(blob, part.get());
    }
    arrivals_->open(blob.name, blob.incomplete);
  }
  return blob;
}

// Fetches the beginning of a file of safetensors, as far as its header reaches.
void Hub::fetch_header(Blob& blob) {
  if (file_exists(blob.path)) return;
  const Descriptor file(blob.incomplete, kAppends);
  fetch_bytes(blob, file.get(), std::min(blob.bytes, kHeaderBytes));
  std::array<std::byte, sizeof(std::uint64_t)> length = {};
  if (::pread(file.get(), length.data(), length.size(), 0) != std::ssize(length)) return;
  const auto bytes = ByteReader(length, blob.what).read<std::uint64_t>("the header's length");
  fetch_bytes(blob, file.get(), std::min(blob.bytes, length.size() + std::min(bytes, blob.bytes)));
}

void Hub::finish_file(const HubRepository& repository, const HubFile& file, Blob& blob) {
  if (file_exists(blob.path)) {
    report(blob, file.bytes);
  } else {
    fetch_blob(blob);
  }
  const fs::path link = snapshot(repository) / file.name;
  fs::create_directories(link.parent_path());
  if (!file_exists(link)) {
    std::error_code error;
    fs::remove(link, error);  // a link whose blob was removed
    fs::create_symlink(fs::relative(blob.path, link.parent_path()), link);
  }
  if (arrivals_ != nullptr) arrivals_->set_verified(blob.name);
}

void Hub::check_hash(const Blob& blob, const fs::path& file) const {
  if (!is_sha256(blob.etag)) return;
  std::string found;
  {
    const MappedFile mapped(file);
    found =
        sha256_hex({reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()});
  }
  if (found == blob.etag) return;
  fs::remove(file);
  fail(ErrorKind::io, blob.what, ": SHA-256 of the download: expected ", blob.etag, ", found ",
       found, "; the download was removed, try again");
}

bool Hub::receive(Blob& blob, int descriptor, std::uint64_t end, std::string& failure,
                  double& wait_seconds) {
  std::uint64_t have = bytes_of(blob.incomplete);
  WebRequest request = {.url = blob.url, .token = settings_.token, .first = have};
  request.end = end < blob.bytes ? end : 0;
  request.receive = [&](const WebResponse& response, std::span<const std::byte> part) {
    if (response.status != 200 && response.status != 206) return;  // the text of an error
    if (response.status == 200 && request.first > 0) {             // ranges are not supported
      start_again(blob, descriptor);
      request.first = have = 0;
    }
    require(
        response.status == 200 || response.header("content-range")
                                      .starts_with("bytes " + std::to_string(request.first) + "-"),
        ErrorKind::io, blob.what, ": asked for bytes from ", request.first, ", found ",
        printable(response.header("content-range")));
    require(blob.bytes == 0 || have + part.size() <= blob.bytes, ErrorKind::io, blob.what,
            ": expected ", blob.bytes, " bytes, found more");
    write_all(descriptor, part, blob.incomplete);
    have += part.size();
    report(blob, have);
  };
  const WebResponse response = client().send(request);
  const bool ended = response.failure.empty() && (response.status == 200 || response.status == 206);
  if (ended && (blob.bytes == 0 || have >= end)) return true;
  failure = ended ? "the connection ended early" : reason_of(response);
  if (response.status == 416) {  // more is here than there
    start_again(blob, descriptor);
  } else if (response.status >= 400 && response.status < 500 && response.status != 408 &&
             response.status != 429) {
    require_success(response, blob.what, blob.url, !settings_.token.empty());
  }
  wait_seconds = wanted_wait(response, wait_seconds);
  return false;
}

// `end`: at most the size of the blob, or 0 if that is not known.
void Hub::fetch_bytes(Blob& blob, int descriptor, std::uint64_t end) {
  std::uint64_t have = bytes_of(blob.incomplete);
  if (blob.bytes > 0 && have > blob.bytes) {
    start_again(blob, descriptor);
    have = 0;
  }
  report(blob, have);
  bool complete = blob.bytes > 0 && have >= end;
  std::string failure;
  double backoff = kFirstWaitSeconds;
  for (int failures = 0; !complete;) {
    double wait = backoff;
    complete = receive(blob, descriptor, end, failure, wait);
    if (complete) break;
    const std::uint64_t now = bytes_of(blob.incomplete);
    failures = now > have ? 1 : failures + 1;
    backoff = now > have ? kFirstWaitSeconds : 2 * backoff;
    have = now;
    require(failures < kMaxFailures, ErrorKind::io, blob.what, ": ", failure, ", ", kMaxFailures,
            " times; the same command continues");
    wait_for_hub(wait, blob.what + ": " + failure, events_.say);
  }
}

void Hub::fetch_blob(Blob& blob) {
  const Descriptor file(blob.incomplete, kAppends);
  fetch_bytes(blob, file.get(), blob.bytes);
  check_hash(blob, blob.incomplete);
  const bool synced = ::fsync(file.get()) == 0;
  require(synced, ErrorKind::io, blob.incomplete.string(), ": ", std::strerror(errno));
  fs::rename(blob.incomplete, blob.path);
}

}  // namespace leq
