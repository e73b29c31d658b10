#include "calls.h"

namespace leq_python {
namespace {

// Raises leq.errors.make(status, text, setting).
void raise_failed(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Failed& failed) {
    // A text may hold a path that is no UTF-8, and be cut inside a character.
    const auto text = nb::steal(PyUnicode_DecodeUTF8(
        failed.text.data(), static_cast<Py_ssize_t>(failed.text.size()), "backslashreplace"));
    const nb::object error =
        nb::module_::import_("leq.errors").attr("make")(failed.status, text, failed.setting);
    PyErr_SetObject(error.type().ptr(), error.ptr());
  }
}

// From now on calls of other threads end before their next token, and new ones do not begin.
void end_calls() { exiting_thread = PyThread_get_thread_ident(); }

// Waits until no call is running, at most so many seconds.
void wait_for_calls(double seconds) {
  const nb::gil_scoped_release release;
  for (double waited = 0; calls > 0 && waited < seconds; waited += 0.001) ::usleep(1000);
}

}  // namespace
}  // namespace leq_python

NB_MODULE(_leq, module) {
  using namespace leq_python;
  module.doc() = "The C API of leq; what users call is in leq itself.";
  nb::register_exception_translator(raise_failed);
  module.attr("__version__") = leq_version();
  module.attr("abi_version") = leq_abi_version();
  nb::set_leak_warnings(false);  // threads that stay keep what they use
  ::pthread_atfork(nullptr, nullptr, [] { calls = 0; });
  module.def("end_calls", &end_calls);
  module.def("wait_for_calls", &wait_for_calls);
  bind_model(module);
  bind_session(module);
  bind_work(module);
}
