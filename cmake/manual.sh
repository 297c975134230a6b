#!/usr/bin/env bash
# Makes the manual page of a program with help2man from its --help, and from the --help of each of its commands.
# Usage: manual.sh HELP2MAN PROGRAM PAGE
set -euo pipefail
help2man=$1 program=$2 page=$3

# NAME's one line: the second paragraph of --help, as a manual page writes it.
summary() { "$program" --help | awk 'NR == 3 { sub(/\.$/, ""); print tolower(substr($0, 1, 1)) substr($0, 2) }'; }

# [COMMAND]: the examples as literal text; help2man would join their lines to paragraphs. Characters that roff prints otherwise than
# a shell reads them have names. A line that begins with [ or / would be a heading to help2man, one with a dot a request to roff.
examples() {
  printf '%s\n' '[=EXAMPLES]' .nf
  "$program" "$@" --help | sed -n '/^Examples:$/,$s/^  //p' | sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/'/\\\\(aq/g" \
    -e 's/`/\\(ga/g' -e 's/\^/\\(ha/g' -e 's/~/\\(ti/g' -e 's:^[/.[]:\\\&&:'
  echo .fi
}

commands() {
  "$program" --help | awk '/ommands.*--help.*:$/ { listed = 1; next } listed && /^  / { print $1; next } { listed = 0 }'
}

# COMMAND: its page as a part of the program's, without --help and --version.
section() {
  examples "$1" | "$help2man" --no-info --include=/dev/stdin --help-option="$1 --help" "$program" |
    awk -v title="${program##*/} $1" '
      /^\.SH SYNOPSIS/ { print ".SS \"" title "\""; wanted = 1; next }
      /^\.SH EXAMPLES/ { wanted = 1 }
      /^\.SS "Other:"/ { wanted = 0 }
      !wanted { next }
      /^\.SH OPTIONS/ { next }
      /^\.SH / { print ".PP"; next }
      /^\.SS / { print ".PP"; sub(/^\.SS/, ".B") }
      /^[\/[]/ { $0 = "\\&" $0 }
      { print }'
}

included() {
  local names name
  examples
  names=$(commands)
  [ -z "$names" ] || echo '[COMMANDS]'
  for name in $names; do section "$name"; done
}

name=$(summary)
included | "$help2man" --no-info --include=/dev/stdin --name="$name" --output="$page" "$program"
