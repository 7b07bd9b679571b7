# googletest: the system's library, or else built from the sources in Debian's package, which are
# downloaded if they are not installed. Without either the configuration fails: tests that do not
# run must not look as if they had passed.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  set(AIOMLC_GTEST_SOURCE /usr/src/googletest CACHE PATH "Sources of googletest")
  if(NOT EXISTS ${AIOMLC_GTEST_SOURCE}/CMakeLists.txt)
    set(package_directory ${CMAKE_CURRENT_BINARY_DIR}/googletest-package)
    set(AIOMLC_GTEST_SOURCE ${package_directory}/usr/src/googletest)
    if(NOT EXISTS ${AIOMLC_GTEST_SOURCE}/CMakeLists.txt)
      file(MAKE_DIRECTORY ${package_directory})
      execute_process(WORKING_DIRECTORY ${package_directory} ERROR_VARIABLE apt_error
        COMMAND sh -c "apt-get download -q googletest || { apt-get update -q && apt-get download -q googletest; }
                       dpkg-deb -x googletest_*.deb ." OUTPUT_QUIET)
    endif()
  endif()
  if(NOT EXISTS ${AIOMLC_GTEST_SOURCE}/CMakeLists.txt)
    message(FATAL_ERROR "The native tests need googletest, which is neither installed nor could its "
      "sources be downloaded with apt-get: install libgtest-dev and libgmock-dev, or set "
      "AIOMLC_GTEST_SOURCE to a directory with its sources.\n${apt_error}")
  endif()
  add_subdirectory(${AIOMLC_GTEST_SOURCE} googletest EXCLUDE_FROM_ALL)
endif()
