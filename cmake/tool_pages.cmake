# cmake -DTOOL=path -DNAME=leq-run -DOUT=folder -P tool_pages.cmake: writes the manual page and the shell completions
# that the tool prints into OUT, at their paths under share/.
set(pages
  "man/man1/${NAME}.1 --man"
  "bash-completion/completions/${NAME} --completion bash"
  "zsh/site-functions/_${NAME} --completion zsh"
  "fish/vendor_completions.d/${NAME}.fish --completion fish")
foreach(page IN LISTS pages)
  separate_arguments(words UNIX_COMMAND "${page}")
  list(POP_FRONT words file)
  get_filename_component(folder ${OUT}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${TOOL} ${words} OUTPUT_FILE ${OUT}/${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
