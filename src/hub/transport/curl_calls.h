// The functions of libcurl that curl.cpp calls: loaded_curl.cpp loads the system's library when
// they are first needed, linked_curl.cpp has them in the program.
#pragma once

#include <curl/curl.h>

#include <string>

namespace leq {

struct CurlCalls {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_reset) reset = nullptr;
  decltype(&curl_easy_setopt) set = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
  decltype(&curl_easy_strerror) text = nullptr;
  decltype(&curl_slist_append) append = nullptr;
  decltype(&curl_slist_free_all) free_list = nullptr;
  std::string certificates = {};  // file of the trusted certificates; empty: libcurl's own default
};

// Fails if there is no libcurl.
CurlCalls find_curl();

}  // namespace leq
