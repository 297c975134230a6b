# LibTorch out of a PyTorch wheel. Reads neither the Python package nor its TorchConfig.cmake, which needs nvcc
# and links libcuda.so.1, absent on machines without a GPU.
#
#   LibTorch_ROOT          the wheel's torch directory; by default $NEOX_TORCH_DIR, else what env/setup.sh installed
#   LibTorch::torch        the CPU library, plus the CUDA library if component CUDA was asked for
#   LibTorch::nccl         the NCCL that libtorch_cuda uses                     (component CUDA)
#   LibTorch_SITE          the site-packages directory around it, which also holds NVIDIA's libraries
#   LibTorch_LIBDIRS       the directories, relative to LibTorch_SITE, that a program must search at run time
#   LibTorch_CUDA_VERSION  of the wheel, e.g. 13.0                              (component CUDA)

if(NOT LibTorch_ROOT)
  set(root "$ENV{NEOX_TORCH_DIR}")
  if(NOT root)
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/env/torch_dir.sh OUTPUT_VARIABLE root
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(LibTorch_ROOT "${root}" CACHE PATH "The torch directory of a PyTorch wheel" FORCE)
endif()

cmake_path(GET LibTorch_ROOT PARENT_PATH LibTorch_SITE)
set(LibTorch_LIBDIRS torch/lib)
if(EXISTS ${LibTorch_ROOT}/version.py)
  file(STRINGS ${LibTorch_ROOT}/version.py line REGEX "^__version__")
  string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" LibTorch_VERSION "${line}")
endif()

# Defines LibTorch::<name> for <dir>/lib/<file>, with headers in <dir>/include.
function(LibTorch_add name dir file)
  find_file(LibTorch_${name}_LIBRARY ${file} PATHS ${dir}/lib NO_DEFAULT_PATH)
  mark_as_advanced(LibTorch_${name}_LIBRARY)
  if(LibTorch_${name}_LIBRARY AND NOT TARGET LibTorch::${name})
    add_library(LibTorch::${name} SHARED IMPORTED)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION ${LibTorch_${name}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${dir}/include)
  endif()
endfunction()

LibTorch_add(c10       "${LibTorch_ROOT}" libc10.so)
LibTorch_add(torch_cpu "${LibTorch_ROOT}" libtorch_cpu.so)
set(required LibTorch_c10_LIBRARY LibTorch_torch_cpu_LIBRARY)

if("CUDA" IN_LIST LibTorch_FIND_COMPONENTS)
  file(STRINGS ${LibTorch_ROOT}/version.py line REGEX "^cuda")
  string(REGEX MATCH "([0-9]+)\\.[0-9]+" LibTorch_CUDA_VERSION "${line}")
  set(major ${CMAKE_MATCH_1})
  set(cuda nvidia/cu${major})
  if(NOT EXISTS ${LibTorch_SITE}/${cuda})
    set(cuda nvidia/cuda_runtime)  # the wheels for CUDA 12
  endif()
  LibTorch_add(c10_cuda   ${LibTorch_ROOT} libc10_cuda.so)
  LibTorch_add(torch_cuda ${LibTorch_ROOT} libtorch_cuda.so)
  LibTorch_add(cudart     ${LibTorch_SITE}/${cuda} libcudart.so.${major})
  LibTorch_add(nccl       ${LibTorch_SITE}/nvidia/nccl libnccl.so.2)
  list(APPEND required LibTorch_c10_cuda_LIBRARY LibTorch_torch_cuda_LIBRARY LibTorch_cudart_LIBRARY LibTorch_nccl_LIBRARY)
  list(APPEND LibTorch_LIBDIRS nvidia/nccl/lib ${cuda}/lib)
  set(LibTorch_CUDA_FOUND TRUE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT ${required} VERSION_VAR LibTorch_VERSION HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "Run env/setup.sh, or set NEOX_TORCH_DIR to the torch directory of a wheel of torch 2.11.0.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  add_library(LibTorch::torch INTERFACE IMPORTED)
  target_include_directories(LibTorch::torch SYSTEM INTERFACE ${LibTorch_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(LibTorch::torch INTERFACE LibTorch::torch_cpu LibTorch::c10 gomp)
  # In a file that is compiled without OpenMP, at::parallel_for is a plain loop.
  target_compile_options(LibTorch::torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  if(LibTorch_CUDA_FOUND)
    # Nothing refers to libtorch_cuda by name: its kernels register themselves when it is loaded.
    target_link_options(LibTorch::torch INTERFACE "LINKER:--push-state,--no-as-needed,${LibTorch_torch_cuda_LIBRARY},--pop-state")
    target_link_libraries(LibTorch::torch INTERFACE LibTorch::c10_cuda LibTorch::cudart)
  endif()
endif()
