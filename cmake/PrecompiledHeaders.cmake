# A file's headers, and the templates that wait in them for the end of the file (1 s with LibTorch), take longer than what
# it says itself. So the headers that most files include are compiled once for each kind of target, code or test, with or
# without LibTorch, and the files of a module eight together, which halves the time of a build. Each file still includes
# what it uses: the preset debug compiles each alone.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(default ON)
else()  # others want all options and macros of the targets to be equal
  set(default OFF)
endif()
option(NEOX_COMPILE_TOGETHER "Compile the headers that most files include only once, and the files of a module together" ${default})

set(neox_code_headers <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <map>
  <memory> <mutex> <optional> <span> <sstream> <string> <string_view> <thread> <unordered_map> <vector>)
set(neox_test_headers ${neox_code_headers} <iostream> <random> <gmock/gmock.h> <gtest/gtest.h>)

set(neox_torch_headers <ATen/TensorOperators.h> <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/ops/empty.h>)

# ccache looks for the precompiled header in what the preprocessor gives. GCC 12 gives false alarms on "text" + std::string,
# and under more names where more headers come before (GCC bugs 105651 and 105329).
set(neox_precompiled_options -fpch-preprocess -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)

# neox_precompile(TARGET KIND): after the target's libraries are known; KIND is code or test.
function(neox_precompile target kind)
  neox_find_torch(${target})
  if(NOT NEOX_COMPILE_TOGETHER)
    return()
  endif()
  get_target_property(torch ${target} NEOX_TORCH)
  set(from neox_${kind}_headers)
  if(torch)
    string(APPEND from _torch)
  endif()
  if(NOT TARGET ${from})
    neox_headers(${from} ${kind} ${torch})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${from})
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${neox_precompiled_options}>")
endfunction()

# NEOX_TORCH of a target: whether LibTorch is among what it links.
function(neox_find_torch target)
  set(torch FALSE)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  foreach(library ${libraries})
    if(library STREQUAL LibTorch::torch)
      set(torch TRUE)
    elseif(TARGET ${library})
      get_target_property(of_library ${library} NEOX_TORCH)
      if(of_library)
        set(torch TRUE)
      endif()
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES NEOX_TORCH ${torch})
endfunction()

# The target that compiles the headers, with the options of the targets that take them.
function(neox_headers name kind torch)
  set(empty ${PROJECT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${name} OBJECT ${empty})
  target_precompile_headers(${name} PRIVATE ${neox_${kind}_headers})
  if(kind STREQUAL test)
    target_compile_options(${name} PRIVATE ${NEOX_TEST_OPTIONS})
    target_link_libraries(${name} PRIVATE GTest::gmock)
  else()
    target_compile_options(${name} PRIVATE ${NEOX_WARNINGS})
  endif()
  if(torch)
    target_precompile_headers(${name} PRIVATE ${neox_torch_headers})
    target_link_libraries(${name} PRIVATE LibTorch::torch)
  endif()
  target_compile_options(${name} PRIVATE ${neox_precompiled_options})
endfunction()
