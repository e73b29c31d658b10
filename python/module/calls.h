// Shared code of the bindings: a failed call raises an exception of leq.errors, work runs without
// the GIL, and callbacks reacquire the GIL.
#pragma once

#include <leq.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

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

// Calls `call(&error)` without the GIL; throws Failed if its status is not LEQ_OK.
template <class Call>
void run(Call call) {
  auto error = sized<leq_error>();
  leq_status status = LEQ_OK;
  {
    const nb::gil_scoped_release release;
    status = call(&error);
  }
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
    const nb::gil_scoped_acquire acquire;
    if (raised_) return 1;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return work() ? 1 : 0;
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
    } catch (...) {
      failed_ = true;
    }
    return 1;
  }
  // Raises the stored exception; requires the GIL, after the call.
  void raise() {
    if (raised_) throw std::move(*raised_);
    if (failed_) throw Failed{LEQ_INTERNAL, "a callback failed", ""};
  }

 private:
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

class Cancel {
 public:
  Cancel() : handle_(leq_cancel_new()) {}
  ~Cancel() { leq_cancel_free(handle_); }
  Cancel(const Cancel&) = delete;
  leq_cancel* get() const { return handle_; }

 private:
  leq_cancel* handle_;
};

class Grammar {
 public:
  Grammar(nb::bytes text, const std::string& kind, bool strict);
  ~Grammar() { leq_grammar_free(handle_); }
  Grammar(const Grammar&) = delete;
  const leq_grammar* get() const { return handle_; }

 private:
  leq_grammar* handle_ = nullptr;
};

class Model {
 public:
  // Opens a file if `bytes` is None, otherwise a .leq file in memory; `progress` is a callable of
  // (work, done, total), or None.
  Model(const std::string& path, nb::object bytes, int load, bool lock,
        const std::optional<std::string>& cache, nb::object progress);
  ~Model() { leq_close(handle_); }
  Model(const Model&) = delete;
  leq_model* get() const { return handle_; }

 private:
  leq_model* handle_ = nullptr;
};

// Each function adds its classes and functions to the module.
void bind_model(nb::module_& module);
void bind_session(nb::module_& module);
void bind_work(nb::module_& module);

}  // namespace leq_python
