# Libraries from the system. A missing one stops the configuration with the Debian package to install.

function(leq_require found what package)
  if(NOT ${found})
    message(FATAL_ERROR "${what} not found: apt install ${package} (or run `make deps`)")
  endif()
endfunction()

find_package(Threads REQUIRED)
find_package(OpenSSL COMPONENTS Crypto)
leq_require(OPENSSL_FOUND "OpenSSL's libcrypto" libssl-dev)

find_path(LEQ_JSON_INCLUDE nlohmann/json.hpp)
leq_require(LEQ_JSON_INCLUDE "nlohmann-json" nlohmann-json3-dev)
add_library(leq_json INTERFACE)
target_include_directories(leq_json SYSTEM INTERFACE ${LEQ_JSON_INCLUDE})

# Its regular expressions would recurse over every letter of a long prompt.
find_path(LEQ_CXXOPTS_INCLUDE cxxopts.hpp)
leq_require(LEQ_CXXOPTS_INCLUDE "cxxopts" libcxxopts-dev)
add_library(leq_cxxopts INTERFACE)
target_include_directories(leq_cxxopts SYSTEM INTERFACE ${LEQ_CXXOPTS_INCLUDE})
target_compile_definitions(leq_cxxopts INTERFACE CXXOPTS_NO_REGEX)

function(leq_system_library name header library package)
  find_path(${name}_INCLUDE ${header})
  find_library(${name}_LIBRARY ${library})
  if(NOT ${name}_INCLUDE OR NOT ${name}_LIBRARY)
    message(FATAL_ERROR "${library} not found: apt install ${package} (or run `make deps`)")
  endif()
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE ${${name}_INCLUDE})
  target_link_libraries(${name} INTERFACE ${${name}_LIBRARY})
endfunction()

leq_system_library(leq_xxhash xxhash.h xxhash libxxhash-dev)
leq_system_library(leq_pcre2 pcre2.h pcre2-8 libpcre2-dev)
leq_system_library(leq_utf8proc utf8proc.h utf8proc libutf8proc-dev)
leq_system_library(leq_libedit histedit.h edit libedit-dev)
