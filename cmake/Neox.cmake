# Project-wide compiler settings and the functions that define modules, programs and tests.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_CXX_FLAGS_CHECKED "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE ccache)
if(CCACHE)  # tried with what it does not have yet: it ends where it cannot keep what was compiled, as without a home directory
  string(TIMESTAMP now %s)
  file(WRITE ${PROJECT_BINARY_DIR}/ccache.cc "int at_${now};\n")
  execute_process(COMMAND ${CCACHE} ${CMAKE_CXX_COMPILER} -c ccache.cc -o ccache.o WORKING_DIRECTORY ${PROJECT_BINARY_DIR}
    RESULT_VARIABLE failed ERROR_VARIABLE why OUTPUT_QUIET ERROR_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(STATUS "Without ccache: ${why}")
  else()
    # Without these, it does not keep what was compiled with a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()
if(NEOX_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${NEOX_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer> $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)  # false alarms of GCC on instrumented code
  add_link_options(-fsanitize=${NEOX_SANITIZE})
endif()
# Warnings are errors with the compiler that the code is developed with. Later ones know new warnings and false alarms, as
# GCC 13 in std::vector<bool> (GCC bug 110498): there a warning must not keep anybody from building.
set(waits_option -O1)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(by_version -Werror)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(by_version -Wno-dangling-reference)  # false alarms where a name that is looked up is a temporary
  set(waits_option -O2)  # at -O1 they do not take headers that were precompiled at -O3
endif()
set(NEOX_WARNINGS -Wall -Wextra ${by_version} -Wno-restrict -Wno-missing-field-initializers)
# The tests' own code is compiled at -O1 in two thirds of the time, and little of the time that they run is spent in it.
set(NEOX_TEST_OPTIONS ${NEOX_WARNINGS} $<$<CONFIG:Release>:-O1;-g0>)
include(PrecompiledHeaders)
# DT_RPATH, unlike DT_RUNPATH, holds for indirect dependencies and beats LD_LIBRARY_PATH,
# so that a process never mixes the wheel's NCCL or CUDA runtime with others on the machine.
add_link_options(LINKER:--disable-new-dtags)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Programs look for libraries in ../lib, then in ../site (a link to a site-packages directory, absent in a build
# tree), then in the wheel they were built with.
function(neox_set_rpath program)
  set(rpath $ORIGIN/../lib)
  foreach(site $ORIGIN/../site ${LibTorch_SITE})
    foreach(dir ${LibTorch_LIBDIRS})
      list(APPEND rpath ${site}/${dir})
    endforeach()
  endforeach()
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "${rpath}")
endfunction()

# neox_module(ops SOURCES philox.cc CUDA philox_cuda.cu STUB no_cuda.cc DEPS base LINK LibTorch::torch)
# defines neox::ops from lib/ops/. Without NEOX_CUDA the STUB files stand in for the CUDA ones. WAITS: of programs that
# wait for disks and people, and is in no other, so that it is compiled at -O1 in two thirds of the time.
# -Wno-restrict: false alarms of GCC 12 on std::string (GCC bug 105651). Designated initializers leave fields out on purpose.
function(neox_module name)
  cmake_parse_arguments(ARG "WAITS" "" "SOURCES;CUDA;STUB;DEPS;LINK" ${ARGN})
  set(sources ${ARG_SOURCES})
  if(NEOX_CUDA)
    list(APPEND sources ${ARG_CUDA})
  else()
    list(APPEND sources ${ARG_STUB})
  endif()
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/lib/${name}/)
  if(BUILD_TESTING)
    add_test(NAME ${name}.includes
      COMMAND ${PROJECT_SOURCE_DIR}/tests/check_includes.sh ${PROJECT_SOURCE_DIR}/lib ${name} ${ARG_DEPS})
  endif()
  list(TRANSFORM ARG_DEPS PREPEND neox::)
  add_library(neox_${name} STATIC ${sources})
  add_library(neox::${name} ALIAS neox_${name})
  target_compile_options(neox_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${NEOX_WARNINGS}>")
  if(ARG_WAITS)
    target_compile_options(neox_${name} PRIVATE $<$<CONFIG:Release>:${waits_option}>)
  endif()
  if(NEOX_COMPILE_TOGETHER)  # what one .cc defines for itself stands in an included file then
    target_compile_options(neox_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>")
  endif()
  target_include_directories(neox_${name} PUBLIC ${PROJECT_SOURCE_DIR}/lib)
  target_link_libraries(neox_${name} PUBLIC ${ARG_DEPS} ${ARG_LINK})
  neox_precompile(neox_${name} code)
  set_target_properties(neox_${name} PROPERTIES UNITY_BUILD ${NEOX_COMPILE_TOGETHER})
  # Alone stay kernels, whose constants have the same names in many files (newer versions of CMake would join them, too),
  # and what stands in for them, which tests replace.
  list(FILTER sources INCLUDE REGEX "(\\.cu|/no_[a-z]+\\.cc)$")
  set_property(SOURCE ${sources} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# What an installed tree holds, without the tests.
add_custom_target(programs)

# neox_app(neox-convert DEPS convert): bin/neox-convert from apps/neox-convert.cc.
# neox_app(neox-train DEPS train FRONT launch SOURCES lib/x/y.cc): that is libexec/neox-train, and bin/neox-train is the
# same source with NEOX_FRONT, FRONT and SOURCES, without LibTorch (lib/launch/front.h).
function(neox_app name)
  cmake_parse_arguments(ARG "" "" "DEPS;FRONT;SOURCES" ${ARGN})
  if(ARG_FRONT)  # the first gives ninja the target of this name
    neox_executable(${name} ${name} bin "${ARG_SOURCES}" "${ARG_FRONT}")
    neox_executable(${name}-whole ${name} libexec "" "${ARG_DEPS}")
    target_compile_definitions(${name} PRIVATE NEOX_FRONT)
    add_dependencies(${name} ${name}-whole)
  else()
    neox_executable(${name} ${name} bin "" "${ARG_DEPS}")
  endif()
  neox_manual(${name})
endfunction()

function(neox_executable target name place sources deps)
  list(TRANSFORM deps PREPEND neox::)
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
  add_executable(${target} ${PROJECT_SOURCE_DIR}/apps/${name}.cc ${sources})
  target_compile_options(${target} PRIVATE ${NEOX_WARNINGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/lib)
  target_link_libraries(${target} PRIVATE ${deps})
  neox_precompile(${target} code)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${place})
  neox_set_rpath(${target})
  add_dependencies(programs ${target})
  install(TARGETS ${target} RUNTIME_DEPENDENCY_SET neox_programs RUNTIME DESTINATION ${place})
endfunction()

# The manual page is made of --help (cmake/manual.sh), and the completion script asks --help for the options.
function(neox_manual name)
  set(page ${PROJECT_BINARY_DIR}/share/man/man1/${name}.1)
  find_program(HELP2MAN help2man)
  if(HELP2MAN)
    add_custom_command(OUTPUT ${page}
      COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0 ${PROJECT_SOURCE_DIR}/cmake/manual.sh ${HELP2MAN}
        $<TARGET_FILE:${name}> ${page}
      DEPENDS ${name} ${PROJECT_SOURCE_DIR}/cmake/manual.sh COMMENT "Manual page of ${name}")
    add_custom_target(${name}.1 ALL DEPENDS ${page})
    add_dependencies(programs ${name}.1)
    install(FILES ${page} DESTINATION share/man/man1)
  endif()
  install(FILES ${PROJECT_SOURCE_DIR}/env/completion.bash DESTINATION share/bash-completion/completions
    RENAME ${name})
endfunction()

# What an installed tree holds beside programs and manual pages: configs, job scripts, documents, and in lib/ the shared
# libraries that not every system has. LibTorch, the C and C++ run time and OpenMP (LibTorch brings it) stay outside.
function(neox_install)
  install(RUNTIME_DEPENDENCY_SET neox_programs
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|util|pthread|resolv|anl|stdc\\+\\+|gcc_s|gomp)\\.so"
                        "^lib(torch|c10|cudart|nccl)[_a-z]*\\.so"
    LIBRARY DESTINATION lib)
  find_library(oniguruma NAMES onig HINTS ${oniguruma_LIBRARY_DIRS} REQUIRED)
  file(REAL_PATH ${oniguruma} oniguruma_file)
  install(FILES ${oniguruma_file} DESTINATION lib RENAME libonig.so.5)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION share/neox)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/env/profiles DESTINATION share/neox)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/sbatch DESTINATION share/neox USE_SOURCE_PERMISSIONS)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION share/doc/neox)
  install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/neox)
  foreach(folder configs containers)
    install(FILES ${PROJECT_SOURCE_DIR}/${folder}/README.md DESTINATION share/doc/neox/${folder})
  endforeach()
endfunction()

# neox_test(box_test DEPS shard): tests/box_test.cc and SOURCES. One thread per process: OpenMP threads
# that outnumber the cores spin. FULL tests run only under env/test.sh --full.
function(neox_test name)
  cmake_parse_arguments(ARG "FULL" "TIMEOUT" "SOURCES;DEPS;LINK" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND neox::)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)  # against what hangs: a busy machine takes three times as long as a quiet one
  endif()
  if(NEOX_SANITIZE)  # which take ten times as long and more
    math(EXPR ARG_TIMEOUT "8 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${name}.cc ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE ${NEOX_TEST_OPTIONS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LINK} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE NEOX_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    NEOX_BUILD_DIR="${PROJECT_BINARY_DIR}")
  neox_precompile(${name} test)
  if(ARG_SOURCES)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${NEOX_COMPILE_TOGETHER})
  endif()
  neox_set_rpath(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "OMP_NUM_THREADS=1")
  if(ARG_FULL)
    set_tests_properties(${name} PROPERTIES LABELS full)
  endif()
endfunction()

# The beginning of a hash of headers of lib that programs share with a plugin: either may be built from other sources of
# one version.
function(neox_interface result)
  foreach(header ${ARGN})
    file(SHA256 ${PROJECT_SOURCE_DIR}/lib/${header} hash)
    string(APPEND all ${hash})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/${header})
  endforeach()
  string(SHA256 all "${all}")
  string(SUBSTRING ${all} 0 8 id)
  set(${result} ${id} PARENT_SCOPE)
endfunction()

# The library lib/neox/lib<name>.so of the target, which alone links that part of Apache Arrow. Its entry is all of it that
# others see.
function(neox_arrow_plugin target name arrow)
  target_compile_options(${target} PRIVATE ${NEOX_WARNINGS} $<$<CONFIG:Release>:-g0>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/lib)
  target_link_libraries(${target} PRIVATE ${arrow})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/neox
    INSTALL_RPATH "$ORIGIN/../../site/pyarrow;${LibTorch_SITE}/pyarrow")
  add_dependencies(programs ${target})
  install(TARGETS ${target} LIBRARY DESTINATION lib/neox)
endfunction()

# Gives it to lib/comm/mpi_build.cc, for the program and for the MPI plugin alike.
function(neox_mpi_interface)
  neox_interface(id base/error.h comm/communicator.h comm/mpi_plugin.h)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/lib/comm/mpi_build.cc PROPERTIES
    COMPILE_DEFINITIONS NEOX_MPI_INTERFACE="${id}" SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
endfunction()
