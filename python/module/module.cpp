#include "calls.h"

namespace leq_python {
namespace {

// Raises leq.errors.make(status, text, setting).
void raise_failed(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Failed& failed) {
    const nb::object error =
        nb::module_::import_("leq.errors").attr("make")(failed.status, failed.text, failed.setting);
    PyErr_SetObject(error.type().ptr(), error.ptr());
  }
}

}  // namespace
}  // namespace leq_python

NB_MODULE(_leq, module) {
  using namespace leq_python;
  module.doc() = "The C API of leq; what users call is in leq itself.";
  nb::register_exception_translator(raise_failed);
  module.attr("__version__") = leq_version();
  module.attr("abi_version") = leq_abi_version();
  bind_model(module);
  bind_session(module);
  bind_work(module);
}
