# LEQ_PYTHON: the Python of the extension's build and of the tests. Without -DLEQ_PYTHON it is that of build/venv, if
# `make venv` has installed the packages of tests/python/requirements.txt there, or python3.
set(LEQ_PYTHON "" CACHE FILEPATH "Python of the extension and of the tests: build/venv's or python3")
if(NOT LEQ_PYTHON)
  if(EXISTS ${PROJECT_SOURCE_DIR}/build/venv/complete)
    set(LEQ_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
  else()
    find_program(LEQ_PYTHON3 python3)
    mark_as_advanced(LEQ_PYTHON3)
    set(LEQ_PYTHON ${LEQ_PYTHON3})
  endif()
endif()
