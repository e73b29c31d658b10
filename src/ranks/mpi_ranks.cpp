// Ranks that are processes started by mpirun.

#include <dlfcn.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/cpu_features.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "ranks/communicator.h"
#include "ranks/mpi_calls.h"

namespace leq {
namespace {

// State for the signal handler, written by the rank's only thread.
struct Place {
  std::atomic<const char*> operation{nullptr}, site{nullptr};
  std::atomic<std::size_t> operation_size{0}, site_size{0};
  std::atomic<std::int64_t> step{0};
};
Place g_place;
std::atomic<int> g_rank{0}, g_size{0};

// Formats a line without allocating memory, for a signal handler.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    for (const char letter : text) {
      if (size_ < line_.size()) line_[size_++] = letter;
    }
    return *this;
  }
  Line& operator<<(std::int64_t number) {
    std::array<char, 20> digits;
    std::size_t first = digits.size();
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << std::string_view(digits.data() + first, digits.size() - first);
  }
  void write_out() const {
    [[maybe_unused]] const auto done = ::write(STDERR_FILENO, line_.data(), size_);
  }

 private:
  std::array<char, 400> line_ = {};
  std::size_t size_ = 0;
};

void on_term(int signal) {
  Line line;
  line << "rank " << std::int64_t{g_rank} << " of " << std::int64_t{g_size} << ": ";
  if (const std::int64_t step = g_place.step; step > 0) line << "step " << step << ": ";
  const char* const operation = g_place.operation;
  if (operation != nullptr) {
    line << "waiting in " << std::string_view(operation, g_place.operation_size) << " '"
         << std::string_view(g_place.site, g_place.site_size) << "'";
  } else {
    line << "at work";
  }
  line << " when told to end (SIGTERM): mpirun does so where another process has died\n";
  line.write_out();
  // Waits until mpirun has read the line, because the last output of an ended process may be lost.
  const timespec pause = {0, 200'000'000};
  ::nanosleep(&pause, nullptr);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// Installs the SIGTERM handler, unless the process has a handler already. It reports in which
// operation this rank was, because mpirun ends all processes at once after one has died.
void report_place_on_signal(int rank, int size) {
  g_rank = rank;
  g_size = size;
  struct sigaction now = {};
  if (::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction action = {};
  action.sa_handler = on_term;
  ::sigaction(SIGTERM, &action, nullptr);
}

// While it exists, records in which operation, at which site and in which step this rank waits. The
// texts must outlive the object.
class ReportedPlace {
 public:
  ReportedPlace(std::string_view operation, std::string_view site, std::int64_t step) {
    g_place.step = step;
    g_place.site = site.data();
    g_place.site_size = site.size();
    g_place.operation_size = operation.size();
    g_place.operation = operation.data();
  }
  ~ReportedPlace() { g_place.operation = nullptr; }
  ReportedPlace(const ReportedPlace&) = delete;
  ReportedPlace& operator=(const ReportedPlace&) = delete;
};

constexpr int kSigns = 20;  // heartbeats per time-out

// Detects lost processes. Each process sends heartbeats to all others from a thread of its own, so
// that a rank may compute for any time. A process that is stopped, or whose machine is down, sends
// none.
class Heartbeat {
 public:
  // `mpi_mutex` is held during every MPI call. `calls` and `mpi_mutex` must outlive the object.
  Heartbeat(const MpiCalls& calls, std::mutex& mpi_mutex, int rank, int size,
            std::chrono::milliseconds heartbeat_timeout)
      : calls_(calls),
        mpi_mutex_(mpi_mutex),
        rank_(rank),
        pause_(heartbeat_timeout / kSigns),
        quiet_(static_cast<std::size_t>(size), 0),
        thread_([this] { run(); }) {}
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    ending_.notify_all();
    thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // A rank that sent no heartbeat during the whole time-out; -1: none.
  int lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      lock.unlock();
      look();
      lock.lock();
      ending_.wait_for(lock, pause_, [this] { return ends_; });
    }
  }

  // Counts pauses instead of time, so that no process counts as lost if all processes were
  // suspended and resumed together.
  void look() {
    const std::lock_guard lock(mpi_mutex_);
    calls_.beat();
    for (int& pauses : quiet_) ++pauses;
    for (int rank = calls_.beat_of(); rank >= 0; rank = calls_.beat_of()) {
      quiet_[static_cast<std::size_t>(rank)] = 0;
    }
    for (int rank = 0; rank < static_cast<int>(quiet_.size()); ++rank) {
      if (rank == rank_ || quiet_[static_cast<std::size_t>(rank)] <= kSigns) continue;
      lost_.store(rank, std::memory_order_release);
      return;
    }
  }

  const MpiCalls& calls_;
  std::mutex& mpi_mutex_;
  int rank_;
  std::chrono::milliseconds pause_;
  std::vector<int> quiet_;  // [ranks] pauses since the last heartbeat of each
  std::atomic<int> lost_{-1};
  std::mutex mutex_;  // guards ends_
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread thread_;
};

constexpr const char* kLibrary = "libleq-mpi.so";

// Number of polls before a waiting thread yields, then before it sleeps between polls.
constexpr int kPolls = 500;
constexpr int kYields = 5000;
constexpr auto kPollInterval = std::chrono::microseconds(100);
// Number of polls between two checks for errors of other ranks.
constexpr int kPollsPerCheck = 64;

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
    int serialized = 0;
    check(calls_.start(&rank_, &size_, &serialized), "the start");
    report_place_on_signal(rank_, size_);
    if (serialized == 1 && size_ > 1) {
      heartbeat_ =
          std::make_unique<Heartbeat>(calls_, mpi_mutex_, rank_, size_, options.heartbeat_timeout);
    }
  }
  ~MpiRank() override {
    heartbeat_.reset();
    if (!ended_) calls_.finish();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override {
    if (size_ == 1) return;
    require_not_aborted();
    lay_out(blocks, site);
    pack(blocks);
    const bool receives = to == Receivers::all || leads();
    received_.resize(receives ? total_ : 0);
    check(serialized([&] {
            return calls_.begin_gather(sent_.data(), received_.data(), counts_.data(),
                                       offsets_.data(), to == Receivers::all ? 1 : 0);
          }),
          site);
    wait("the gather", site, Wait::bounded);
    if (receives) unpack(blocks);
  }

  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    if (size_ == 1) return;
    require_not_aborted();
    auto count = static_cast<std::int64_t>(bytes.size());
    check(serialized([&] { return calls_.begin_broadcast(&count, sizeof count); }), site);
    wait("the broadcast", site, leads() ? Wait::bounded : Wait::patient);
    ensure(count >= 0 && count <= std::numeric_limits<int>::max(), site, ": ", count, " bytes");
    bytes.resize(static_cast<std::size_t>(count));
    check(serialized([&] { return calls_.begin_broadcast(bytes.data(), count); }), site);
    wait("the broadcast", site, Wait::bounded);
  }

  void barrier(std::string_view site) override {
    if (size_ == 1) return;
    require_not_aborted();
    check(serialized([&] { return calls_.begin_barrier(); }), site);
    wait("the barrier", site, Wait::bounded);
  }

  Error abort(const Error& error) noexcept override {
    if (!ended_) {
      ended_.emplace(error);
      const std::string_view text = error.marked();
      serialized([&] { return calls_.send_error(text.data(), static_cast<int>(text.size())); });
      linger();
    }
    return *ended_;
  }
  std::chrono::milliseconds timeout() const override { return options_.timeout; }

 private:
  enum class Wait : std::uint8_t { bounded, patient };

  void check(int result, std::string_view site) {
    require(result >= 0, ErrorKind::no_device, "MPI fails at ", site);
  }
  void require_not_aborted() const {
    if (ended_) throw Error(*ended_);
  }

  // Calls MPI under the mutex, because calls must not overlap.
  template <class Call>
  int serialized(Call call) {
    const std::lock_guard lock(mpi_mutex_);
    return call();
  }

  // Throws another rank's error if one has arrived.
  void receive_error() {
    std::array<char, 4096> text;
    const int length = serialized(
        [&] { return calls_.receive_error(text.data(), static_cast<int>(text.size())); });
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
      serialized([&] { return calls_.receive_error(text.data(), static_cast<int>(text.size())); });
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  // `operation` and `site` for the message: "the gather 'layers.3.o'".
  [[noreturn]] void lose(std::string_view operation, std::string_view site,
                         const std::string& why) {
    const std::string text =
        "waits in " + std::string(operation) + " '" + std::string(site) + "' for " + why;
    throw abort(rank_error(*this, Error(text, ErrorKind::no_device)));
  }

  void check_heartbeats(std::string_view operation, std::string_view site) {
    if (heartbeat_ == nullptr || heartbeat_->lost() < 0) return;
    lose(operation, site,
         "rank " + std::to_string(heartbeat_->lost()) + ", which has given no sign of life for " +
             std::to_string(options_.heartbeat_timeout.count()) + " ms");
  }

  void wait(std::string_view operation, std::string_view site, Wait how) {
    const ReportedPlace place(operation, site, step());
    const Stopwatch watch;
    for (int poll = 0;; ++poll) {
      const int done = serialized([&] { return calls_.done(); });
      check(done, site);
      if (done == 1) return;
      if (poll % kPollsPerCheck == 0) {
        receive_error();
        check_heartbeats(operation, site);
      }
      if (poll < kPolls) {
        pause_briefly();
        continue;
      }
      if (how == Wait::bounded && poll % kPollsPerCheck == 0 &&
          watch.seconds() * 1000 > static_cast<double>(options_.timeout.count())) {
        lose(operation, site,
             "the others, for more than " + std::to_string(options_.timeout.count()) + " ms");
      }
      if (poll < kPolls + kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPollInterval);
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
  std::unique_ptr<Heartbeat> heartbeat_;  // null if MPI supports only one thread
  int rank_ = 0, size_ = 1;
  std::optional<Error> ended_;
  // Members that describe the current gather:
  std::vector<int> counts_, offsets_;  // [ranks] bytes
  std::size_t total_ = 0;
  std::vector<std::byte> sent_, received_;
};

// A number from an environment variable of mpirun; nullopt if it is missing or below `least`.
std::optional<int> variable_number(const char* variable, int least) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const auto number = parse_int(text);
  if (!number || *number < least || *number > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

std::optional<int> mpi_processes() { return variable_number("OMPI_COMM_WORLD_SIZE", 1); }

int mpi_local_rank() { return variable_number("OMPI_COMM_WORLD_LOCAL_RANK", 0).value_or(0); }

std::unique_ptr<Communicator> make_mpi_rank(const MpiRankOptions& options) {
  return std::make_unique<MpiRank>(options);
}

}  // namespace leq
