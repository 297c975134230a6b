# Arrow's C++ libraries out of the wheel of pyarrow that lies beside LibTorch's, without Python.
#
#   PyArrow::parquet   libparquet and libarrow, with their headers
#   PyArrow::s3        libarrow_s3 and libarrow, where the wheel has the former
#   PyArrow_VERSION

file(GLOB PyArrow_PARQUET ${LibTorch_SITE}/pyarrow/libparquet.so.*)
file(GLOB PyArrow_S3 ${LibTorch_SITE}/pyarrow/libarrow_s3.so.*)
file(GLOB PyArrow_ARROW ${LibTorch_SITE}/pyarrow/libarrow.so.*)
set(PyArrow_INCLUDE ${LibTorch_SITE}/pyarrow/include)
if(EXISTS ${PyArrow_INCLUDE}/arrow/util/config.h)
  file(STRINGS ${PyArrow_INCLUDE}/arrow/util/config.h line REGEX "define ARROW_VERSION_STRING")
  string(REGEX MATCH "[0-9.]+" PyArrow_VERSION "${line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PyArrow REQUIRED_VARS PyArrow_PARQUET PyArrow_ARROW PyArrow_VERSION
  VERSION_VAR PyArrow_VERSION)

if(PyArrow_FOUND AND NOT TARGET PyArrow::parquet)
  add_library(PyArrow::arrow SHARED IMPORTED)
  set_target_properties(PyArrow::arrow PROPERTIES IMPORTED_LOCATION ${PyArrow_ARROW})
  add_library(PyArrow::parquet SHARED IMPORTED)
  set_target_properties(PyArrow::parquet PROPERTIES IMPORTED_LOCATION ${PyArrow_PARQUET}
    INTERFACE_INCLUDE_DIRECTORIES ${PyArrow_INCLUDE} INTERFACE_LINK_LIBRARIES PyArrow::arrow)
endif()
if(PyArrow_FOUND AND PyArrow_S3 AND NOT TARGET PyArrow::s3)
  add_library(PyArrow::s3 SHARED IMPORTED)
  set_target_properties(PyArrow::s3 PROPERTIES IMPORTED_LOCATION ${PyArrow_S3}
    INTERFACE_INCLUDE_DIRECTORIES ${PyArrow_INCLUDE} INTERFACE_LINK_LIBRARIES PyArrow::arrow)
endif()
