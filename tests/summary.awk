# Sums up test logs: the failed and the skipped by name, then a line "N passed, N failed, N skipped".
#   <name>.ctest.log   what ctest printed                      says how each test ended
#   <name>.cases.log   ctest's LastTest.log                    has the gtest cases of each test
#   others             lines "oracle passed|failed|skipped: NAME" of tests/oracle/run.sh
# A test counts by its gtest cases, or as one where it has none; where it fails without a failed case (a crash, a
# time-out), that is a failure too. Exits with 1 on failures, or where nothing passed.
function note(kind, name, why) {
  count[kind]++
  if (kind != "passed") list[kind] = list[kind] "  " kind ": " name (why == "" ? "" : " (" why ")") "\n"
}
FNR == 1 { set = FILENAME; sub(/.*\//, "", set); sub(/\..*/, "", set) }

FILENAME ~ /\.ctest\.log$/ && match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: [^ ]+ /) {
  name = substr($0, RSTART, RLENGTH - 1); sub(/.*: /, "", name)
  ended = $0; sub(/^[^:]*: [^ ]+ \.*( |\*)*/, "", ended); sub(/ +[0-9.]+ sec.*$/, "", ended)
  status[set " " name] = ended
}

FILENAME ~ /\.cases\.log$/ && /^[0-9]+\/[0-9]+ Testing: / { test = set " " $3; why = ""; reason = 0 }
FILENAME ~ /\.cases\.log$/ && reason { why = $0; sub(/^[ \t]+/, "", why); reason = 0 }
FILENAME ~ /\.cases\.log$/ && /: Skipped$/ { reason = 1 }
FILENAME ~ /\.cases\.log$/ && match($0, /\[(       OK |  FAILED  |  SKIPPED )\] [^ ,]+.*\([0-9]+ ms\)$/) {
  kind = substr($0, RSTART + 1, 10) ~ /OK/ ? "passed" : substr($0, RSTART + 1, 10) ~ /FAILED/ ? "failed" : "skipped"
  name = substr($0, RSTART + 13); sub(/ \([0-9]+ ms\)$/, "", name)
  cases[test]++
  if (kind == "failed") failures[test]++
  note(kind, test " " name, kind == "skipped" ? why : "")
}

/^oracle (passed|failed|skipped): / { kind = $2; sub(/:$/, "", kind); sub(/^[^:]*: /, ""); note(kind, $0) }

END {
  for (test in status) {
    if (status[test] == "Passed") { if (!cases[test]) note("passed", test) }
    else if (status[test] ~ /^(Skipped|Not Run \(Disabled\))/) note("skipped", test)
    else if (!failures[test]) note("failed", test, status[test])
  }
  printf "%s%s", list["failed"], list["skipped"]
  printf "%d passed, %d failed, %d skipped\n", count["passed"], count["failed"], count["skipped"]
  exit count["failed"] > 0 || count["passed"] == 0
}
