# Links libarchive statically where that and what it needs is there: only the formats that are asked for come along. The shared
# library loads libxml2 and ICU for formats that are not used here, 36 MB, which also need a newer libstdc++ than a bundle may.
find_library(LibArchive_STATIC libarchive.a)
set(libraries ${LibArchive_STATIC})
foreach(name nettle lzma zstd lz4 bz2 z)
  find_library(LibArchive_${name} ${name})
  list(APPEND libraries ${LibArchive_${name}})
endforeach()
if(NOT "${libraries}" MATCHES NOTFOUND)
  list(POP_FRONT libraries)
  set_target_properties(LibArchive::LibArchive PROPERTIES
    IMPORTED_LOCATION ${LibArchive_STATIC} INTERFACE_LINK_LIBRARIES "${libraries}")
endif()
