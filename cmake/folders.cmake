# A folder's files are compiled as one: what they all include is then read, and what they all use of
# templates made, once for the folder; it halves the time. So the names in a folder differ, those in
# unnamed namespaces too. -DLEQ_BY_FOLDER=OFF compiles each file for itself, for quick changes, as the
# presets asan, tsan, portable and fuzz do: a file includes what it uses all the same.

# Files with names that others of their folder have: regular expressions.
set(leq_files_apart
  tools/bench/parts/limit_kernels_portable src/tensor/nf4 src/convert/tokenizer_parts src/grammar/gbnf src/grammar/pattern
  src/chat/jinja/methods src/chat/jinja/operators src/chat/jinja/value
  src/quantize/methods/billm src/quantize/methods/gptq src/quantize/methods/second_order
  tests/backend/attention_test tests/base/json_test
  tests/cache/kv_copies_test tests/cuda/[a-z0-9_/]+ tests/engine/receipt_test
  tests/engine/scheduler_test tests/format/leq_reader_test
  tests/chat/chat_template_test tests/chat/reply_test tests/sampling/[a-z_]+ tests/grammar/[a-z0-9_]+
  tests/model/activation_modes_test tests/model/invariance_test tests/model/ranks_test tests/model/window_test
  tests/server/http_server_test tests/sim/random_models_test tests/sim/ranks_test tests/tools/manual_test
  tests/tools/options_test tests/tools/quantize_resume_test tests/tools/quantize_test
  tests/tools/run_question_test tests/tools/run_test)
list(JOIN leq_files_apart "|" leq_files_apart)

# leq_compile_by_folder(TARGET)
function(leq_compile_by_folder target)
  get_target_property(files ${target} SOURCES)
  list(FILTER files EXCLUDE REGEX "/(${leq_files_apart})\\.cpp$|\\$<")
  foreach(file IN LISTS files)
    get_filename_component(folder ${file} REALPATH)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    get_filename_component(folder ${folder} DIRECTORY)
    string(REGEX REPLACE "[^a-z0-9]+" "_" folder "${folder}")
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${folder})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LEQ_BY_FOLDER} UNITY_BUILD_MODE GROUP)
  # Every file is an included one then, and g++ takes what is in it for a header's.
  target_compile_options(${target} PRIVATE
    "$<$<AND:$<BOOL:${LEQ_BY_FOLDER}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>")
endfunction()
