# A source file with the built-in texts of src/quantize/calibration/texts.

foreach(text prose articles stories heldout)
  set(file ${PROJECT_SOURCE_DIR}/src/quantize/calibration/texts/${text}.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} ${text})
endforeach()
configure_file(src/quantize/calibration/texts.cpp.in generated/quantize/calibration/texts.cpp @ONLY)
