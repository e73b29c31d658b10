// The system's libcurl, loaded at run time.
#include <dlfcn.h>

#include <cstring>

#include "base/error.h"
#include "hub/transport/curl_calls.h"

namespace leq {
namespace {

constexpr const char* kCurlLibrary = "libcurl.so.4";

template <class Function>
void find(void* library, const char* name, Function*& function) {
  void* const symbol = ::dlsym(library, name);
  require(symbol != nullptr, ErrorKind::io, kCurlLibrary, " has no ", name);
  std::memcpy(&function, &symbol, sizeof symbol);
}

}  // namespace

CurlCalls find_curl() {
  void* const library = ::dlopen(kCurlLibrary, RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, ErrorKind::io, "downloads need ", kCurlLibrary,
          ": apt install libcurl4, or fetch the model with `hf download REPOSITORY`");
  CurlCalls found;
  find(library, "curl_global_init", found.global_init);
  find(library, "curl_easy_init", found.init);
  find(library, "curl_easy_reset", found.reset);
  find(library, "curl_easy_setopt", found.set);
  find(library, "curl_easy_perform", found.perform);
  find(library, "curl_easy_cleanup", found.cleanup);
  find(library, "curl_easy_strerror", found.text);
  find(library, "curl_slist_append", found.append);
  find(library, "curl_slist_free_all", found.free_list);
  return found;
}

}  // namespace leq
