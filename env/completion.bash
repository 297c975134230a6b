# bash completion of the neox programs: options from --help, else file names.
_neox() {
  local word=${COMP_WORDS[COMP_CWORD]} program=("$1")
  if [[ ${1##*/} == neox-data ]]; then
    if (( COMP_CWORD == 1 )) && [[ $word != -* ]]; then
      mapfile -t COMPREPLY < <(compgen -W "count import merge repair show split verify" -- "$word")
      return
    fi
    (( COMP_CWORD == 1 )) || program+=("${COMP_WORDS[1]}")
  fi
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("${program[@]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _neox neox-train neox-data neox-prepare-data neox-generate neox-convert neox-plot neox-submit neox-doctor
