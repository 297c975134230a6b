#!/usr/bin/env bash
# The tree keeps the rules of check_discipline.sh, and each rule notices a file that breaks it.
# Usage: discipline_test.sh TREE
set -euo pipefail
tree=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
failed=0

"$here/check_discipline.sh" "$tree" || { echo "the tree breaks a rule"; failed=1; }

bad=$(mktemp -d)
trap 'rm -rf "$bad"' EXIT
# expect FILE TEXT: a tree with this file only is refused by name.
expect() {
  rm -rf "${bad:?}"/*
  mkdir -p "$bad/lib/a" "$bad/apps" "$bad/tests/golden" "$bad/docs"
  printf '%s\n' "$2" > "$bad/$1"
  if "$here/check_discipline.sh" "$bad" > "$bad/out" 2>&1; then echo "not noticed: $1 with: ${2:0:60}"; failed=1
  elif ! grep -q "^$1" "$bad/out"; then echo "$1 is not named in:"; cat "$bad/out"; failed=1; fi
}
expect lib/a/x.cc '#include <torch/torch.h>'
expect apps/x.cc '#include <ATen/ATen.h>'
expect tests/x_test.cc '#include "torch/torch.h"'
expect lib/a/x.h '#include <ATen/ops/empty.h>'
expect lib/a/x.h '#include <torch/types.h>'
expect tests/x.h '#include <torch/csrc/autograd/custom_function.h>'
expect lib/a/x.cu '#include <ATen/core/Tensor.h>'
expect lib/a/x.cc "$(seq -f '// %g' 401)"
expect docs/x.md "$(printf 'TO%s: write this' DO)"
expect lib/a/x.h "$(printf '// FIX%s' ME)"

# expect() of two headers: the second is named.
mkdir -p "$bad/lib/b"
for module in a b; do printf 'namespace neox {\nstruct Place {\n};\n}\n' > "$bad/lib/$module/x.h"; done
"$here/check_discipline.sh" "$bad" > "$bad/out" 2>&1 && { echo "not noticed: two types of one name"; failed=1; }
grep -q '^lib/b/x.h: ' "$bad/out" || { echo "lib/b/x.h is not named in:"; cat "$bad/out"; failed=1; }

rm -rf "${bad:?}"/*
mkdir -p "$bad/lib/a" "$bad/tests/golden"
printf '#include <ATen/core/Tensor.h>\n#include <c10/core/ScalarType.h>\n' > "$bad/lib/a/x.h"
printf '#include <torch/csrc/autograd/custom_function.h>\n' > "$bad/lib/a/x.cc"
seq -f 'a line of a table %g' 500 > "$bad/tests/golden/x.txt"
"$here/check_discipline.sh" "$bad" || { echo "refused what is allowed"; failed=1; }
exit $failed
