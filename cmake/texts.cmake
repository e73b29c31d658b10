# A source file with the built-in texts of data/calibration.

foreach(text prose articles stories heldout)
  set(file ${PROJECT_SOURCE_DIR}/data/calibration/${text}.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} ${text})
endforeach()
configure_file(cmake/calibration_texts.cpp.in generated/quantize/calibration/texts.cpp @ONLY)
