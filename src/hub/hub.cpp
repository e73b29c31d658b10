// Lists repositories, and explains what the hub answers.
#include "hub/hub.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/requests.h"
#include "hub/web_client.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxRefBytes = 4096;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 46;  // sums of sizes stay far from 2^64
constexpr std::size_t kMaxFiles = 1 << 16;

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](unsigned char c) {
           return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
         });
}

// The names come from a server, and become paths in the cache.
bool is_safe_name(const std::string& name) {
  if (name.empty() || name.size() > 1024 || printable(name, 1024) != name) return false;
  return std::ranges::none_of(split(name, "/"), [](std::string_view part) {
    return part.empty() || part == "." || part == ".." || part.find('\\') != part.npos;
  });
}

}  // namespace

HubRepository read_listing(const std::string& name, const std::string& revision,
                           std::string_view text, const std::string& url) {
  HubRepository repository = {.name = name, .revision = revision};
  const Json json = parse_json(text, url);
  repository.commit = json_get<std::string>(json, "sha", url);
  require(is_commit(repository.commit), url,
          ": 'sha' is no commit: ", printable(repository.commit));
  for (const Json& sibling : json_member(json, "siblings", Json::Type::array, url)) {
    HubFile file = {.name = json_get<std::string>(sibling, "rfilename", url)};
    require(is_safe_name(file.name), url, ": unsafe file name '", printable(file.name), "'");
    file.bytes = json_get_or<std::uint64_t>(sibling, "size", 0, url);
    if (const Json* lfs = sibling.find_given("lfs")) {
      file.sha256 = json_get_or<std::string>(*lfs, "sha256", "", url);
      file.bytes = json_get_or<std::uint64_t>(*lfs, "size", file.bytes, url);
    }
    require(file.bytes <= kMaxFileBytes, url, ": '", printable(file.name), "' of ", file.bytes,
            " bytes: larger than any disk");
    require(repository.files.size() < kMaxFiles, url, ": more than ", kMaxFiles, " files");
    repository.files.push_back(std::move(file));
  }
  constexpr std::string_view kLicense = "license:";
  if (const Json* tags = json.find_given("tags"); tags != nullptr && tags->is_array()) {
    for (const Json& tag : *tags) {
      if (!tag.is_string() || !tag.text().starts_with(kLicense)) continue;
      repository.license = printable(tag.text().substr(kLicense.size()));
    }
  }
  return repository;
}

Hub::Hub(HubSettings settings, HubEvents events)
    : settings_(std::move(settings)), events_(std::move(events)) {}
Hub::~Hub() = default;

WebClient& Hub::client() {
  if (!client_) client_ = std::make_unique<WebClient>();
  return *client_;
}

fs::path Hub::folder(std::string_view name) const {
  return settings_.cache / ("models--" + replace_all(name, "/", "--"));
}

// Files of a snapshot, in whatever program downloaded them.
std::optional<HubRepository> Hub::cached(const std::string& name,
                                         const std::string& revision) const {
  HubRepository repository = {
      .name = name, .revision = revision, .commit = revision, .cached = true};
  const fs::path ref = folder(name) / "refs" / revision;
  if (!is_commit(revision)) {
    if (!file_exists(ref)) return std::nullopt;
    repository.commit = trim(read_file(ref, kMaxRefBytes));
    if (!is_commit(repository.commit)) return std::nullopt;
  }
  const fs::path snapshot = folder(name) / "snapshots" / repository.commit;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    repository.files.push_back(
        {fs::relative(it->path().parent_path(), snapshot) / it->path().filename(),
         it->file_size(error)});
    HubFile& file = repository.files.back();
    if (file.name.starts_with("./")) file.name.erase(0, 2);
  }
  if (repository.files.empty()) return std::nullopt;
  std::ranges::sort(repository.files, {}, &HubFile::name);
  return repository;
}

HubRepository Hub::list(const std::string& name, const std::string& revision) {
  require(is_safe_name(name) && is_safe_name(revision), printable(name),
          ": is no name of a repository");
  if (settings_.offline) {
    if (auto known = cached(name, revision)) return *known;
    fail(ErrorKind::io, name, ": is not in ", settings_.cache.string(), ", and ",
         Setting{"offline"}, " or HF_HUB_OFFLINE forbids downloads");
  }
  const std::string url = settings_.endpoint + "/api/models/" + url_path(name) + "/revision/" +
                          url_part(revision) + "?blobs=true";
  const WebResponse response =
      send_patiently(client(), {.url = url, .token = settings_.token}, events_.say);
  const bool unreachable = !response.failure.empty() || response.status >= 500;
  if (unreachable) {
    if (auto known = cached(name, revision)) {
      events_.say(settings_.endpoint + " cannot be reached (" + reason_of(response) +
                  "): using the files in " + settings_.cache.string());
      return *known;
    }
  }
  require(response.failure.empty(), ErrorKind::io, name,
          ": no network, or the hub does not answer: ", settings_.endpoint, ": ", response.failure,
          "; `leq ls` lists the models that are here, ",
          "HF_ENDPOINT names another hub, and HF_HUB_OFFLINE=1 asks none");
  require_success(response, name, url, !settings_.token.empty());
  return read_listing(name, revision, response.body, url);
}

// Names the commit of a branch, once its files are here.
void Hub::keep_ref(const HubRepository& repository) const {
  const fs::path ref = folder(repository.name) / "refs" / repository.revision;
  if (repository.revision == repository.commit ||
      (file_exists(ref) && trim(read_file(ref, kMaxRefBytes)) == repository.commit)) {
    return;
  }
  fs::create_directories(ref.parent_path());
  AtomicFile file(ref);
  file.append(std::as_bytes(std::span(repository.commit)));
  file.commit();
}

}  // namespace leq
