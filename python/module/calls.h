// Shared code of the bindings: a failed call raises an exception of leq.errors, work runs without
// the GIL, and callbacks reacquire the GIL.
#pragma once

#include <leq.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace leq_python {

// An exception that is translated to the Python exception class of `status`.
struct Failed {
  leq_status status;
  std::string text, setting;
};

// A struct of the C API with its size set and all other members 0.
template <class T>
T sized() {
  T value;
  std::memset(&value, 0, sizeof value);
  value.size = sizeof value;
  return value;
}

// While Python exits, calls of other threads end early, and these threads stay where they are:
// Python would end them by unwinding their stacks, which C++ does not survive.
inline std::atomic<unsigned long> exiting_thread = 0;  // the one that ends Python; 0: none yet
inline std::atomic<int> calls = 0;                     // running in the library, not in a callback

inline bool must_end() {
  return exiting_thread != 0 && exiting_thread != PyThread_get_thread_ident();
}

[[noreturn]] inline void stay() {
  while (true) ::pause();
}

// Calls `take`, which takes the GIL, or stays.
template <class Take>
auto take_gil(Take take) {
  try {
    return take();
  } catch (...) {  // pthread_exit; leaving this block would abort
    stay();
  }
}

// Calls `call(&error)` without the GIL; throws Failed if its status is not LEQ_OK.
template <class Call>
void run(Call call) {
  auto error = sized<leq_error>();
  ++calls;
  PyThreadState* state = PyEval_SaveThread();
  if (must_end()) {
    --calls;
    stay();
  }
  const leq_status status = call(&error);
  --calls;
  if (must_end()) stay();
  take_gil([&] { PyEval_RestoreThread(state); });
  if (status != LEQ_OK) throw Failed{status, error.text, error.setting};
}

struct FreeBlock {
  void operator()(void* block) const { leq_free(block); }
};
template <class T>
using Block = std::unique_ptr<T, FreeBlock>;

using Tokens = std::vector<leq_token>;

// Runs Python code during a call of the library: checks for signals and calls callables. An
// exception in this code ends the call and is raised after it.
class Watcher {
 public:
  // Runs `work` with the GIL; returns 0 to continue the call, 1 to end it (also on an exception).
  template <class Work>
  std::int32_t look(Work work) noexcept {
    if (must_end()) return 1;
    --calls;
    const PyGILState_STATE gil = take_gil([] { return PyGILState_Ensure(); });
    const std::int32_t ends = look_with_gil(work);
    PyGILState_Release(gil);
    ++calls;
    return must_end() ? 1 : ends;
  }
  // Raises the stored exception; requires the GIL, after the call.
  void raise() {
    if (raised_) throw std::move(*raised_);
    if (failed_) throw Failed{LEQ_INTERNAL, "a callback failed", ""};
  }

 private:
  template <class Work>
  std::int32_t look_with_gil(Work work) {
    if (raised_) return 1;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return work() ? 1 : 0;
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
    } catch (const std::exception&) {
      failed_ = true;
    } catch (...) {  // pthread_exit in Python code
      stay();
    }
    return 1;
  }

  std::optional<nb::python_error> raised_;
  bool failed_ = false;
};

// Like run(), with a watcher, whose exception takes precedence over the status.
template <class Call>
void run_watched(Watcher& watcher, Call call) {
  try {
    run(call);
  } catch (const Failed&) {
    watcher.raise();
    throw;
  }
  watcher.raise();
}

inline const char* or_null(const std::optional<std::string>& text) {
  return text ? text->c_str() : nullptr;
}

// A callable of (work, done, total) and a callable of (line); either may be None.
struct ProgressSink {
  Watcher watcher;
  nb::handle progress, say = {};

  static std::int32_t on_progress(void* user, const char* work, std::int64_t done,
                                  std::int64_t total) {
    auto& sink = *static_cast<ProgressSink*>(user);
    return sink.watcher.look([&] {
      if (!sink.progress.is_none()) sink.progress(work, done, total);
      return false;
    });
  }
  static void on_line(void* user, const char* line) {
    auto& sink = *static_cast<ProgressSink*>(user);
    sink.watcher.look([&] {
      if (!sink.say.is_none()) sink.say(line);
      return false;
    });
  }
};

// A handle of the library, which is freed only by the process that made it: a forked process has
// none of the threads that freeing may wait for.
template <class T, void (*free)(T*)>
class Handle {
 public:
  Handle() = default;
  ~Handle() {
    if (::getpid() == maker_) free(handle_);
  }
  Handle(const Handle&) = delete;
  T* get() const { return handle_; }

 protected:
  T* handle_ = nullptr;

 private:
  pid_t maker_ = ::getpid();
};

class Cancel : public Handle<leq_cancel, leq_cancel_free> {
 public:
  Cancel() { handle_ = leq_cancel_new(); }
};

class Grammar : public Handle<leq_grammar, leq_grammar_free> {
 public:
  Grammar(nb::bytes text, const std::string& kind, bool strict);
};

class Model : public Handle<leq_model, leq_close> {
 public:
  // Opens a file if `bytes` is None, otherwise a .leq file in memory; `progress` is a callable of
  // (work, done, total), or None.
  Model(nb::bytes path, nb::object bytes, int load, bool lock, std::optional<nb::bytes> cache,
        nb::object progress);
};

// Each function adds its classes and functions to the module.
void bind_model(nb::module_& module);
void bind_session(nb::module_& module);
void bind_work(nb::module_& module);

}  // namespace leq_python
