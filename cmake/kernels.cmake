# Flags of the library's sources: for kernels those of their instruction set (selected at run time,
# src/backend/cpu/kernels/kernels.h), for the others an optimization level. Both are lists of paths without .cpp. A
# source without an entry is an error, and so is an entry without a source.

# leq_kernels(FLAGS FILES...): flags of source files of the processor family (cmake/processor.cmake), named from src on.
function(leq_kernels flags)
  if(LEQ_FUZZ)  # a fuzzer reads bytes; sanitized and optimized kernels take clang most of its time
    list(APPEND flags -O1 -fno-sanitize=all)
  elseif(LEQ_SANITIZE STREQUAL "thread")  # they share nothing but what their callers give to one thread each
    list(APPEND flags -fno-sanitize=thread)
  endif()
  foreach(name IN LISTS ARGN)
    set(file ${PROJECT_SOURCE_DIR}/src/${name}.cpp)
    if(NOT file IN_LIST processor_sources)
      message(FATAL_ERROR "cmake/kernels.cmake: ${file} is listed, but there is no such kernel file")
    endif()
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
    list(APPEND listed_kernels ${file})
  endforeach()
  set(listed_kernels ${listed_kernels} PARENT_SCOPE)
endfunction()

# leq_flags_LEVEL: flags of an instruction set.
# -falign-loops=64: the same AVX2 loop took 7 % more time at an unlucky offset in its cache line.
# -Wno-*uninitialized: g++ 12's AVX-512 header reads a value that is undefined on purpose.
# -fno-schedule-insns: on ARM g++ 12's scheduler moves loads up until the accumulators no longer fit in registers.
set(avx512 -march=x86-64-v4 -mprefer-vector-width=512 -O3 $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
set(leq_flags_v3 -march=x86-64-v3 -O3)
set(leq_flags_avx2 -march=x86-64-v3 -O3 -falign-loops=64)
set(leq_flags_avxvnni -march=x86-64-v3 -mavxvnni -O3 -falign-loops=64)
set(leq_flags_avx512 ${avx512} -falign-loops=64)
set(leq_flags_avx512vnni ${avx512} -mavx512vnni)
set(leq_flags_avx512amx ${avx512} -mavx512vnni -mamx-tile -mamx-int8)
set(unscheduled $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
set(leq_flags_neon -O3 ${unscheduled})
set(leq_flags_dotprod -march=armv8.2-a+dotprod -O3 ${unscheduled})
set(leq_flags_i8mm -march=armv8.2-a+dotprod+i8mm -O3 ${unscheduled})

set(kernels backend/cpu/kernels/${LEQ_PROCESSOR})
set(tiles quantize/linear_algebra/${LEQ_PROCESSOR}/tile_kernels)
leq_kernels("" base/${LEQ_PROCESSOR}/processor ${kernels}/levels)
if(LEQ_PROCESSOR STREQUAL "x86")
  leq_kernels("" ${tiles})
  leq_kernels("${leq_flags_v3}" ${kernels}/v3)
  leq_kernels("${leq_flags_avx2}" ${kernels}/avx2 ${kernels}/matmul_avx2 ${tiles}_avx2)
  leq_kernels("${leq_flags_avxvnni}" ${kernels}/avxvnni)
  leq_kernels("${leq_flags_avx512}" ${kernels}/avx512 ${kernels}/matmul_avx512 ${tiles}_avx512)
  leq_kernels("${leq_flags_avx512vnni}" ${kernels}/avx512vnni ${kernels}/super_avx512vnni)
  leq_kernels("${leq_flags_avx512amx}" ${kernels}/avx512amx ${kernels}/super_avx512amx)
elseif(LEQ_PROCESSOR STREQUAL "arm")
  leq_kernels("${leq_flags_neon}" ${kernels}/neon ${tiles})
  leq_kernels("${leq_flags_dotprod}" ${kernels}/dotprod)
  leq_kernels("${leq_flags_i8mm}" ${kernels}/i8mm)
else()
  leq_kernels("" ${tiles})
endif()
foreach(file IN LISTS processor_sources)
  if(NOT file IN_LIST listed_kernels)
    message(FATAL_ERROR "cmake/kernels.cmake: no list has the kernel file ${file}")
  endif()
endforeach()

# Optimization levels of files and folders; the entry of the innermost folder counts.
# -O3: numeric loops. -O1: code that reads small files, plans, reports, or runs once per step; it compiles in a quarter
# less time (tools and tests are also -O1).
set(leq_O3 src/backend/cpu src/format/gguf_iquants src/format/gguf_types src/quantize/linear_algebra src/tensor)
set(leq_O2 cuda/layout src/backend src/base src/cache src/eval src/grammar src/model/rope src/quantize
  src/sampling src/tokenizer)
set(leq_O1 families src/chat src/convert src/engine src/format src/grammar/gbnf src/grammar/json_schema
  src/model src/ranks src/runtime src/quantize/methods/method src/quantize/run src/quantize/search
  src/eval/mixed_search src/eval/report)

set(unused ${leq_O1} ${leq_O2} ${leq_O3})
foreach(file IN LISTS sources)
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${file})
  string(REGEX REPLACE "\\.cpp$" "" name ${name})
  while(NOT name IN_LIST leq_O1 AND NOT name IN_LIST leq_O2 AND NOT name IN_LIST leq_O3)
    get_filename_component(name "${name}" DIRECTORY)
    if(name STREQUAL "")
      message(FATAL_ERROR "cmake/kernels.cmake: no level of optimization has ${file}")
    endif()
  endwhile()
  list(REMOVE_ITEM unused ${name})
  foreach(level O1 O2 O3)
    if(name IN_LIST leq_${level})
      list(APPEND sources_${level} ${file})
    endif()
  endforeach()
endforeach()
if(unused)
  message(FATAL_ERROR "cmake/kernels.cmake: these names have no source of the library: ${unused}")
endif()

# Only -O2 and -O1 sources have a precompiled header, which is valid for one set of flags and contains its own
# optimization level. Also, inline functions of the standard library must not be compiled with the flags of an
# instruction set: the linker may keep that copy for the whole program.
set(number_sources ${sources_O3})
set(leq_numbers_flags "$<$<CONFIG:Release>:-O3>")
set(sources ${sources_O2})
set(once_sources ${sources_O1})
# False positive of g++ 12 at -O1: an uninitialized empty std::string in a std::variant. Fuzzers run all code often.
set(leq_once_flags "$<$<NOT:$<OR:$<CONFIG:Debug>,$<BOOL:${LEQ_FUZZ}>>>:-O1>" "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
