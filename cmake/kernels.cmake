# The CPU kernels: one file for each kernel and instruction set, each compiled with just the flags of
# its set; chosen at run time (src/backend/cpu/kernel_levels.h). What belongs to one processor family
# lies in a folder of its own, beside what it is a version of (cmake/processor.cmake).

# leq_take(TO REGEX): the sources that match become those of TO.
macro(leq_take to regex)
  set(${to} ${sources})
  list(FILTER ${to} INCLUDE REGEX "${regex}")
  list(FILTER sources EXCLUDE REGEX "${regex}")
endmacro()

# Neither these nor the loops over numbers have a precompiled header: it is valid for one set of flags,
# it would bring its own level of optimization with it, and inline functions of the standard library
# must not be compiled with the instructions of a kernel's set, or the linker may keep that copy for all.
leq_take(number_sources "_portable\\.cpp$|/src/((tensor|backend/cpu|quantize/linear_algebra)/|format/gguf_types)")
set(leq_numbers_flags "$<$<CONFIG:Release>:-O3>")

# What reads small files, sets out the work and reports on it, and what a step does but once: a quarter
# less to compile (so are the tools and the tests). At -O1 g++ 12 takes a std::variant's empty text for an
# uninitialized one.
set(leq_once_flags "$<$<NOT:$<CONFIG:Debug>>:-O1>" "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
# Of src/model all but rope, which works on numbers.
set(once_places /families/ /src/ranks/ /src/convert/ /src/engine/ /src/format/
  /src/runtime/ /src/quantize/run/ /src/quantize/search/
  /src/quantize/methods/method "/src/model/([^r]|ra)" /src/chat/
  /src/grammar/json_schema /src/grammar/gbnf
  "/src/eval/(mixed_|report)")
list(JOIN once_places "|" once_places)
leq_take(once_sources "${once_places}")

# leq_kernel_flags(NAME FLAGS...): of the files of `kernels` that end in _NAME.cpp
macro(leq_kernel_flags name)
  set(named ${kernels})
  list(FILTER named INCLUDE REGEX "_${name}\\.cpp$")
  set_source_files_properties(${named} PROPERTIES COMPILE_OPTIONS "${ARGN}")
endmacro()
# leq_compile_kernels(FILES...): gives each file the flags of its instruction set.
function(leq_compile_kernels)
  set(kernels ${ARGN})
  if(LEQ_PROCESSOR STREQUAL "x86")
    leq_kernel_flags(v3 -march=x86-64-v3 -O3)
    # Loops begin with a line of the cache: by chance they began where the same AVX2 loop took 7 % more
    # time.
    leq_kernel_flags(avx2 -march=x86-64-v3 -O3 -falign-loops=64)
    leq_kernel_flags(avxvnni -march=x86-64-v3 -mavxvnni -O3 -falign-loops=64)
    # g++ 12's own AVX-512 header reads a value that it leaves undefined on purpose: no warning for it.
    leq_kernel_flags(avx512 -march=x86-64-v4 -mprefer-vector-width=512 -O3 -falign-loops=64
      -Wno-uninitialized -Wno-maybe-uninitialized)
    leq_kernel_flags(avx512vnni -march=x86-64-v4 -mavx512vnni -mprefer-vector-width=512 -O3
      -Wno-uninitialized -Wno-maybe-uninitialized)
    leq_kernel_flags(avx512amx -march=x86-64-v4 -mavx512vnni -mamx-tile -mamx-int8
      -mprefer-vector-width=512 -O3 -Wno-uninitialized -Wno-maybe-uninitialized)
  elseif(LEQ_PROCESSOR STREQUAL "arm")
    # Without this scheduler g++ 12 keeps the accumulators in registers; with it, it moves loads up
    # until they do not fit.
    leq_kernel_flags(neon -O3 -fno-schedule-insns)
    leq_kernel_flags(dotprod -march=armv8.2-a+dotprod -O3 -fno-schedule-insns)
    leq_kernel_flags(i8mm -march=armv8.2-a+dotprod+i8mm -O3 -fno-schedule-insns)
  endif()
endfunction()
leq_compile_kernels(${processor_sources})
