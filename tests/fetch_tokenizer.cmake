# Downloads the tokenizer of GPT-NeoX-20B and Pythia (Apache-2.0) to FILE, which tests of exact token ids want.
# cmake -DFILE=... -P tests/fetch_tokenizer.cmake; fails quietly without a network.
set(urls
  https://raw.githubusercontent.com/EleutherAI/pythia/main/utils/20B_tokenizer.json
  https://huggingface.co/EleutherAI/gpt-neox-20b/resolve/main/tokenizer.json)
set(sha256 56ac4821e129d2c520fdaba60abd920fa852ada51b45c0dd52bbb6bd8c985ade)
foreach(url ${urls})
  file(DOWNLOAD ${url} ${FILE}.part TIMEOUT 20 INACTIVITY_TIMEOUT 4 STATUS status)
  list(GET status 0 code)
  if(code EQUAL 0)
    file(SHA256 ${FILE}.part hash)
    if("${hash}" STREQUAL "${sha256}")
      file(RENAME ${FILE}.part ${FILE})
      return()
    endif()
    message(STATUS "${url} is not the file expected (SHA-256 ${hash})")
  endif()
endforeach()
file(REMOVE ${FILE}.part)
message(FATAL_ERROR "20B_tokenizer.json cannot be downloaded: ${status}")
