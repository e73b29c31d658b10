# What leq-export alone needs, as a library of its own: `make demo` does not build it.
foreach(part export)
  add_library(leq_${part} STATIC ${${part}_sources})
  target_link_libraries(leq_${part} PUBLIC leq PRIVATE Threads::Threads OpenSSL::Crypto leq_xxhash leq_json leq_flags)
  target_compile_options(leq_${part} PRIVATE "${leq_once_flags}")
  target_precompile_headers(leq_${part} REUSE_FROM leq_once)
  leq_compile_by_folder(leq_${part})
endforeach()
