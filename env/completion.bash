# bash completion of the neox programs: options from --help, else file names.
_neox() {
  local word=${COMP_WORDS[COMP_CWORD]} program=("${1/#\~/$HOME}")
  local commands="" first=${COMP_WORDS[1]-}
  case ${1##*/} in
    neox-data) commands="count import merge repair show split verify" ;;
    neox-convert) commands="inspect diff options" ;;
    neox-submit) commands="build-image prepare-data train convert generate layouts" ;;
  esac
  if (( COMP_CWORD == 1 )) && [[ -n $commands && $word != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
    (( ${#COMPREPLY[@]} == 0 )) || return
  fi
  # Commands have options of their own; what neox-submit is told are jobs.
  [[ ${1##*/} == neox-submit || " $commands " != *" $first "* || -z $first ]] || (( COMP_CWORD == 1 )) || program+=("$first")
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("${program[@]}" --help 2>/dev/null | sed -nE 's/^  (-[a-z] \[ )?(--[a-z][a-z0-9-]*).*/\2/p')" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _neox neox-train neox-data neox-prepare-data neox-generate neox-serve neox-convert neox-plot neox-submit neox-doctor
