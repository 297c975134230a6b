#!/usr/bin/env bash
# Holds the sources of a tree to rules that keep compiling fast and reading easy; names each file that breaks one.
# Usage: check_discipline.sh TREE
set -uo pipefail
cd "$1" || exit 1
bad=0

# report TEXT: the files or lines on stdin break a rule.
report() {
  local line
  while IFS= read -r line; do echo "$line: $1"; bad=1; done
}

sources() { find lib apps tests benchmarks -name '*.h' -o -name '*.cc' -o -name '*.cu' 2>/dev/null; }
including() { xargs -r grep -lE "#include [<\"]$1[>\"]" || true; }

# All of torch takes 9 s and 1.3 GB in each file that includes it; operators have headers of their own.
report "includes all of torch; take <ATen/core/Tensor.h> and <ATen/ops/...>" \
  < <(sources | including '(torch/(torch|all|extension)|ATen/ATen)\.h')

report "a header includes more of torch than <ATen/core/Tensor.h> and c10's core" \
  < <(find lib -name '*.h' -exec grep -HoE '^#include <(torch|ATen|c10)/[^>]*>' {} + |
      grep -vE '<ATen/core/Tensor.h>|<c10/(core|util)/')

report "custom_function.h takes 2 s; include it in .cc files only" \
  < <(sources | grep '\.h$' | including 'torch/csrc/autograd/custom_function\.h')

report "kernels take raw pointers; no torch types in .cu files" \
  < <(find lib -name '*.cu' | including '(torch|ATen)/.*')

# Two types of one name in one program are taken for one type, and nothing says so. Modules with a namespace of their own
# (neox::wiki) are not looked at.
report "a type of this name stands in another header of namespace neox, too" \
  < <(find lib -name '*.h' -exec grep -lE '^namespace neox \{' {} + 2>/dev/null | sort |
      xargs -r grep -HoE '^(struct|class|enum class) [A-Za-z0-9]+ *[:{]' |
      sed -E 's/^([^:]*):(struct|class|enum class) ([A-Za-z0-9]+).*/\3 \1/' | sort | awk '$1 == name { print $2 } { name = $1 }')

# Tables may be long, and so may tests that are tables of cases.
long='^(lib/tokenizer/unicode_tables.cc|lib/wiki/tables.cc|lib/config/keys_[a-z]*.cc|docs/config.md|LICENSE)$|^tests/golden/'
report "is longer than 400 lines; split it" \
  < <({ sources; find cmake env apps configs docs tests README.md CMakeLists.txt -type f 2>/dev/null; } | sort -u |
      grep -vE "$long|\.pyc$" | xargs -r wc -l | awk '$2 != "total" && $1 > 400 { print $2 " has " $1 " lines" }')

# The brackets keep this line from naming itself.
report "finish it, or open an issue" \
  < <({ sources; find cmake env configs docs tests/oracle README.md CMakeLists.txt -type f 2>/dev/null; } | sort -u |
      xargs -r grep -nE '\b(TO[D]O|FIX[M]E)\b' /dev/null | cut -c1-120)

exit $bad
