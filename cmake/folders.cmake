# Compilation by folder: the files of a folder are one translation unit, which halves the build time because headers
# are read and templates instantiated once for the folder. -DLEQ_BY_FOLDER=OFF compiles file by file, as `make
# tidy` and tests/mutation do; therefore each file includes what it uses.

# Files that are compiled separately because they repeat names of other files of their folder, in unnamed namespaces. A
# folder in this list stands for all its files.
set(leq_files_apart
  tools/bench/parts/limit_kernels_portable
  src/chat/jinja/methods
  src/chat/jinja/operators
  src/chat/jinja/value
  src/convert/tokenizer_parts
  src/grammar/gbnf
  src/quantize/methods/billm
  src/quantize/methods/gptq
  src/quantize/methods/second_order
  src/tensor/nf4
  tests/backend/attention_test
  tests/base/json_test
  tests/cache/kv_copies_test
  tests/chat/chat_template_test
  tests/chat/reply_test
  tests/cuda
  tests/engine/receipt_test
  tests/engine/scheduler_test
  tests/format/leq_reader_test
  tests/grammar
  tests/model/activation_modes_test
  tests/model/invariance_test
  tests/model/ranks_test
  tests/model/window_test
  tests/quantize/quantize_job_test
  tests/sampling
  tests/server/http_server_test
  tests/sim/random_models_test
  tests/sim/ranks_test
  tests/tools/manual_test
  tests/tools/options_test
  tests/tools/quantize_resume_test
  tests/tools/quantize_test
  tests/tools/run_question_test
  tests/tools/run_test)

# leq_compile_by_folder(TARGET)
function(leq_compile_by_folder target)
  get_target_property(files ${target} SOURCES)
  list(FILTER files EXCLUDE REGEX "\\$<")
  foreach(file IN LISTS files)
    get_filename_component(name ${file} REALPATH)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${name})
    get_filename_component(folder ${name} DIRECTORY)
    string(REGEX REPLACE "\\.cpp$" "" name ${name})
    while(name AND NOT name IN_LIST leq_files_apart)
      get_filename_component(name ${name} DIRECTORY)
    endwhile()
    if(NOT name)
      string(REGEX REPLACE "[^a-z0-9]+" "_" folder "${folder}")
      set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${folder})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LEQ_BY_FOLDER} UNITY_BUILD_MODE GROUP)
  # g++ takes the included files of a unit for headers.
  target_compile_options(${target} PRIVATE
    "$<$<AND:$<BOOL:${LEQ_BY_FOLDER}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>")
endfunction()
