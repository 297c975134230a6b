#!/bin/sh
# A module includes itself and the modules that it depends on: no others, and each of these.
# Usage: check_includes.sh <lib directory> <module> [dependency...]
cd "$1" || exit 1
shift
bad=0
all=$(grep -rhoE '#include "[a-z0-9_]+/' "$1" | sed 's/.*"//; s/\///' | sort -u | tr '\n' ' ')
for used in $all; do
  case " $* " in *" $used "*) ;; *) echo "lib/$1 includes $used/, which is not in its DEPS"; bad=1 ;; esac
done
module=$1
shift
for dependency; do
  case " $all" in *" $dependency "*) ;; *) echo "lib/$module has $dependency in its DEPS and does not include it"; bad=1 ;; esac
done
exit $bad
