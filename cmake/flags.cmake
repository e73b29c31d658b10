# The flags that the arithmetic depends on (no fused multiply-add that the source does not write, no
# fast-math), warnings, and what a build asks for.

# g++ 12 sees overlaps and overruns in "text" + std::string that are not there (-Wrestrict at -O3, the
# others where the standard headers are precompiled, because it forgets then that they are the system's).
add_library(leq_flags INTERFACE)
target_compile_options(leq_flags INTERFACE -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow
  -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast -Wno-psabi
  -Wno-missing-field-initializers
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
# What people build: cc1plus looks for garbage when it holds 256 MiB, not 128: a twentieth less to compile.
target_compile_options(leq_flags INTERFACE
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:SHELL:--param ggc-min-heapsize=262144>")
if(LEQ_SHARED OR LEQ_PYTHON_MODULE STREQUAL "ON")
  # For all, so that all can use one precompiled header.
  target_compile_options(leq_flags INTERFACE -fPIC
    $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
endif()
if(LEQ_WERROR)
  target_compile_options(leq_flags INTERFACE -Werror)
endif()
if(LEQ_SANITIZE)
  # g++ 12 with sanitizers doubts its own std::regex.
  set(sanitize -fsanitize=${LEQ_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_options(leq_flags INTERFACE "${sanitize}"
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
  target_link_options(leq_flags INTERFACE -fsanitize=${LEQ_SANITIZE})
  # ThreadSanitizer does not know fences, and g++ says so. The emulator has one for __threadfence,
  # beside which all that is shared goes by atomics.
  target_compile_options(leq_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
endif()
if(LEQ_FUZZ)
  target_compile_options(leq_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
