#include "comm/mpi_ranks.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/cpu_features.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "comm/abort_report.h"
#include "comm/heartbeat.h"
#include "comm/mpi/mpi_calls.h"

namespace leq {
namespace {

constexpr const char* kLibrary = "libleq-mpi.so";

// Number of polls before a waiting thread yields, then before it sleeps between polls.
constexpr int kPolls = 500;
constexpr int kYields = 5000;
constexpr auto kNap = std::chrono::microseconds(100);
// Number of polls between two checks for errors of other ranks.
constexpr int kPollsAHearing = 64;

// Search path of the library: the program's folder and its parent (build tree), ../lib/leq
// (installed), then the system's search path.
std::vector<std::string> places() {
  std::vector<std::string> all;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const auto folder = program.parent_path();
    for (const auto& at : {folder, folder.parent_path(), folder.parent_path() / "lib" / "leq"}) {
      const auto path = at / kLibrary;
      if (std::filesystem::exists(path, error)) all.push_back(path.string());
    }
  }
  all.emplace_back(kLibrary);
  return all;
}

const MpiCalls& load_calls() {
  std::string why;
  for (const std::string& place : places()) {
    // RTLD_GLOBAL, because MPI's plugins look up its symbols globally.
    void* const library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      const char* const error = ::dlerror();
      if (why.empty()) why = error == nullptr ? place : error;  // the first error says the most
      continue;
    }
    void* const symbol = ::dlsym(library, kMpiCallsSymbol);
    require(symbol != nullptr, ErrorKind::no_device, place, ": not the library of this program");
    MpiCallsFunction calls = nullptr;
    std::memcpy(&calls, &symbol, sizeof calls);
    require(calls()->version == MpiCalls::kVersion, ErrorKind::no_device, place, ": version ",
            calls()->version, ", expected ", MpiCalls::kVersion, "; install both again");
    return *calls();
  }
  fail(ErrorKind::no_device, "MPI: ", why,
       "; build with MPI (Debian: libopenmpi-dev), or run as one process without mpirun");
}

class MpiRank final : public Communicator {
 public:
  explicit MpiRank(const MpiRankOptions& options) : calls_(load_calls()), options_(options) {
    int in_turn = 0;
    check(calls_.start(&rank_, &size_, &in_turn), "the start");
    report_place_on_signal(rank_, size_);
    if (in_turn == 1 && size_ > 1) {
      signs_ = std::make_unique<Heartbeat>(calls_, mpi_mutex_, rank_, size_, options.silence);
    }
  }
  ~MpiRank() override {
    signs_.reset();
    if (!ended_) calls_.finish();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override {
    if (size_ == 1) return;
    require_going();
    lay_out(blocks, site);
    pack(blocks);
    const bool receives = to == Receivers::all || leads();
    received_.resize(receives ? total_ : 0);
    check(in_turn([&] {
            return calls_.begin_gather(sent_.data(), received_.data(), counts_.data(),
                                       offsets_.data(), to == Receivers::all ? 1 : 0);
          }),
          site);
    wait("the gather", site, Wait::bounded);
    if (receives) unpack(blocks);
  }

  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    if (size_ == 1) return;
    require_going();
    auto count = static_cast<std::int64_t>(bytes.size());
    check(in_turn([&] { return calls_.begin_broadcast(&count, sizeof count); }), site);
    wait("the broadcast", site, leads() ? Wait::bounded : Wait::patient);
    ensure(count >= 0 && count <= std::numeric_limits<int>::max(), site, ": ", count, " bytes");
    bytes.resize(static_cast<std::size_t>(count));
    check(in_turn([&] { return calls_.begin_broadcast(bytes.data(), count); }), site);
    wait("the broadcast", site, Wait::bounded);
  }

  void barrier(std::string_view site) override {
    if (size_ == 1) return;
    require_going();
    check(in_turn([&] { return calls_.begin_barrier(); }), site);
    wait("the barrier", site, Wait::bounded);
  }

  Error abort(const Error& error) noexcept override {
    if (!ended_) {
      ended_.emplace(error);
      const std::string_view text = error.marked();
      in_turn([&] { return calls_.tell(text.data(), static_cast<int>(text.size())); });
      linger();
    }
    return *ended_;
  }
  std::chrono::milliseconds patience() const override { return options_.patience; }

 private:
  enum class Wait : std::uint8_t { bounded, patient };

  void check(int result, std::string_view site) {
    require(result >= 0, ErrorKind::no_device, "MPI fails at ", site);
  }
  void require_going() const {
    if (ended_) throw Error(*ended_);
  }

  // Calls MPI under the mutex, because calls must not overlap.
  template <class Call>
  int in_turn(Call call) {
    const std::lock_guard lock(mpi_mutex_);
    return call();
  }

  // Throws another rank's error if one has arrived.
  void hear() {
    std::array<char, 4096> text;
    const int length =
        in_turn([&] { return calls_.heard(text.data(), static_cast<int>(text.size())); });
    if (length <= 0) return;
    ended_.emplace(std::string(text.data(), static_cast<std::size_t>(length)));
    throw Error(*ended_);
  }

  // Waits until the error is sent, because MPI makes progress only within its calls, and because
  // the exit of one process ends all processes.
  void linger() noexcept {
    const Stopwatch watch;
    std::array<char, 4096> text;
    while (watch.seconds() < 0.3) {
      in_turn([&] { return calls_.heard(text.data(), static_cast<int>(text.size())); });
      std::this_thread::sleep_for(kNap);
    }
  }

  // `operation` and `site` for the message: "the gather 'layers.3.o'".
  [[noreturn]] void lose(std::string_view operation, std::string_view site,
                         const std::string& why) {
    const std::string text =
        "waits in " + std::string(operation) + " '" + std::string(site) + "' for " + why;
    throw abort(rank_error(*this, Error(text, ErrorKind::no_device)));
  }

  void look_for_lost(std::string_view operation, std::string_view site) {
    if (signs_ == nullptr || signs_->lost() < 0) return;
    lose(operation, site,
         "rank " + std::to_string(signs_->lost()) + ", which has given no sign of life for " +
             std::to_string(options_.silence.count()) + " ms");
  }

  void wait(std::string_view operation, std::string_view site, Wait how) {
    const ReportedPlace place(operation, site, step());
    const Stopwatch watch;
    for (int poll = 0;; ++poll) {
      const int done = in_turn([&] { return calls_.done(); });
      check(done, site);
      if (done == 1) return;
      if (poll % kPollsAHearing == 0) {
        hear();
        look_for_lost(operation, site);
      }
      if (poll < kPolls) {
        pause_briefly();
        continue;
      }
      if (how == Wait::bounded && poll % kPollsAHearing == 0 &&
          watch.seconds() * 1000 > static_cast<double>(options_.patience.count())) {
        lose(operation, site,
             "the others, for more than " + std::to_string(options_.patience.count()) + " ms");
      }
      if (poll < kPolls + kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
  }

  // Computes counts and offsets of the gather. Each rank's data are contiguous: blocks, then rows.
  void lay_out(std::span<const SharedRows> blocks, std::string_view site) {
    counts_.assign(static_cast<std::size_t>(size_), 0);
    offsets_.assign(static_cast<std::size_t>(size_), 0);
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      std::size_t count = 0;
      for (const SharedRows& block : blocks) {
        count += static_cast<std::size_t>(block.rows) * block.parts[rank].count();
      }
      require(at + count <= std::numeric_limits<int>::max(), ErrorKind::bad_setting, site, ": ",
              at + count, " bytes in one exchange; use a smaller ", Setting{"batch_tokens"});
      counts_[rank] = static_cast<int>(count);
      offsets_[rank] = static_cast<int>(at);
      at += count;
    }
    total_ = at;
  }

  void pack(std::span<const SharedRows> blocks) {
    const auto own = static_cast<std::size_t>(rank_);
    sent_.resize(static_cast<std::size_t>(counts_[own]));
    std::byte* to = sent_.data();
    for (const SharedRows& block : blocks) {
      const std::size_t bytes = block.parts[own].count();
      if (bytes == 0) continue;
      for (std::size_t row = 0; row < static_cast<std::size_t>(block.rows); ++row, to += bytes) {
        std::memcpy(to, block.own + row * block.own_stride, bytes);
      }
    }
  }

  void unpack(std::span<const SharedRows> blocks) const {
    const std::byte* from = received_.data();
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      for (const SharedRows& block : blocks) {
        const ByteRange part = block.parts[rank];
        if (part.count() == 0) continue;
        for (std::size_t row = 0; row < static_cast<std::size_t>(block.rows); ++row) {
          if (rank != static_cast<std::size_t>(rank_)) {
            std::memcpy(block.all + row * block.stride + part.first, from, part.count());
          }
          from += part.count();
        }
      }
    }
  }

  const MpiCalls& calls_;
  MpiRankOptions options_;
  std::mutex mpi_mutex_;
  std::unique_ptr<Heartbeat> signs_;  // null if MPI supports only one thread
  int rank_ = 0, size_ = 1;
  std::optional<Error> ended_;
  // Members that describe the current gather:
  std::vector<int> counts_, offsets_;  // [ranks] bytes
  std::size_t total_ = 0;
  std::vector<std::byte> sent_, received_;
};

}  // namespace

namespace {

// A number from an environment variable of mpirun; nullopt if it is missing or below `least`.
std::optional<int> told(const char* variable, int least) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const auto number = parse_int(text);
  if (!number || *number < least || *number > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

std::optional<int> mpi_processes() { return told("OMPI_COMM_WORLD_SIZE", 1); }

int mpi_local_rank() { return told("OMPI_COMM_WORLD_LOCAL_RANK", 0).value_or(0); }

std::unique_ptr<Communicator> make_mpi_rank(const MpiRankOptions& options) {
  return std::make_unique<MpiRank>(options);
}

}  // namespace leq
