// Repositories of the Hugging Face hub: lists their files, and downloads files into the hub's own
// cache, which is shared with the programs of huggingface_hub:
//
//   <cache>/models--ORG--NAME/blobs/<etag>                 contents; <etag>.incomplete until whole
//                             snapshots/<commit>/<file>    links to blobs
//                             refs/<revision>              the commit of a branch
//                             .no_exist/<commit>/<file>    files that the commit does not have
//   <cache>/.locks/models--ORG--NAME/<etag>.lock           held (flock) while a blob is written
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

class Arrivals;
class WebClient;

struct HubSettings {
  std::string endpoint;         // without a slash at its end
  std::string token;            // empty: none
  std::filesystem::path cache;  // the folder of all repositories
  bool offline = false;         // only what is in the cache
};
// From HF_ENDPOINT, HF_TOKEN (or the file HF_TOKEN_PATH), HF_HUB_CACHE, HF_HOME and HF_HUB_OFFLINE,
// with huggingface_hub's defaults. Throws Error if there is no home folder.
HubSettings hub_settings();

struct HubFile {
  std::string name;         // a relative path
  std::uint64_t bytes = 0;  // 0: not known
  std::string sha256 = {};  // of files in LFS, otherwise empty
};

struct HubRepository {
  std::string name;      // "Qwen/Qwen3-0.6B"
  std::string revision;  // as asked for: "main"
  std::string commit;    // 40 hexadecimal digits
  std::vector<HubFile> files;
  std::string license = {};  // as the hub calls it, "apache-2.0"; empty: not known
  bool cached = false;       // the files are those in the cache, which may not be all
};

// Reads the hub's answer to /api/models/NAME/revision/REVISION, which is not trusted. Throws Error
// that names `url`, also if a file's name is not a path below a folder.
HubRepository read_listing(const std::string& name, const std::string& revision,
                           std::string_view text, const std::string& url);

struct HubEvents {
  // Bytes of all files that were to be downloaded.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = [](auto, auto) {};
  std::function<void(const std::string& line)> say = [](const auto&) {};
};

// A lock that processes hold on a file, one at a time, as filelock of Python does (flock).
class FileLock {
 public:
  // Waits for the lock; calls `waiting` first if another process holds it. Makes missing folders.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waiting);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

class Hub {
 public:
  explicit Hub(HubSettings settings, HubEvents events = {});
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Lists a repository at a branch, tag or commit. Offline, or if the hub cannot be reached, it has
  // the files that are in the cache. Throws Error that says what the hub answered and what to do.
  HubRepository list(const std::string& name, const std::string& revision = "main");
  // Downloads the files that the cache does not have, and returns the folder of the snapshot.
  // Checks first that the disk has space, also for `bytes_beside`, and afterwards sizes and the
  // SHA-256 of LFS files. An interrupted download is resumed by the next call. Throws Error.
  // `arrivals`, made of files that are missing(), receives the progress of each file, headers
  // first.
  std::filesystem::path fetch(const HubRepository& repository, const std::vector<HubFile>& files,
                              std::uint64_t bytes_beside = 0, Arrivals* arrivals = nullptr);
  // The files that the cache does not have.
  std::vector<HubFile> missing(const HubRepository& repository,
                               const std::vector<HubFile>& files) const;
  // The folder of a repository's files at its commit.
  std::filesystem::path snapshot(const HubRepository& repository) const;

  // The folder of a repository in the cache.
  std::filesystem::path folder(std::string_view name) const;

 private:
  struct Blob;
  WebClient& client();
  std::optional<HubRepository> cached(const std::string& name, const std::string& revision) const;
  void keep_ref(const HubRepository& repository) const;
  void check_space(const HubRepository& repository, const std::vector<HubFile>& missing,
                   std::uint64_t bytes_beside) const;
  Blob find_blob(const HubRepository& repository, const HubFile& file);
  // `held`: blobs that this call has locked, of which one may have the same content.
  Blob lock_blob(const HubRepository& repository, const HubFile& file,
                 const std::vector<Blob>& held);
  void fetch_header(Blob& blob);
  void finish_file(const HubRepository& repository, const HubFile& file, Blob& blob);
  void fetch_blob(Blob& blob);
  void fetch_bytes(Blob& blob, int descriptor, std::uint64_t end);
  void check_hash(const Blob& blob, const std::filesystem::path& file) const;
  // Receives a blob's bytes up to `end`, or all (0). Returns whether they are there, otherwise
  // `failure` says why not.
  bool receive(Blob& blob, int descriptor, std::uint64_t end, std::string& failure,
               double& wait_seconds);
  void start_again(Blob& blob, int descriptor);
  void report(Blob& blob, std::uint64_t have);

  HubSettings settings_;
  HubEvents events_;
  std::unique_ptr<WebClient> client_;
  Arrivals* arrivals_ = nullptr;  // of the call of fetch
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace leq
