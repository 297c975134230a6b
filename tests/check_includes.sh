#!/bin/sh
# A module may include only itself and the modules it depends on.
# Usage: check_includes.sh <lib directory> <module> [dependency...]
cd "$1" || exit 1
shift
bad=0
# shellcheck disable=SC2013
for used in $(grep -rhoE '#include "[a-z_]+/' "$1" | sed 's/.*"//; s/\///' | sort -u); do
  case " $* " in *" $used "*) ;; *) echo "lib/$1 includes $used/, which is not in its DEPS"; bad=1 ;; esac
done
exit $bad
