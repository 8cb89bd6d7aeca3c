#!/usr/bin/env bash
# The check of a policy change, for any CI system.
#
#   policy-review.sh OLD NEW OUT
#
# OLD and NEW are policy folders (the reviewed-against and the changed one), OUT a folder for
# policy-diff.md, policy-verify.xml (JUnit) and policy-lint.sarif. GATEWAY names the command; it
# must come from the OLD revision (README.md says why).
#
# With POLICY_TOKEN_FILE (a token of a pipeline's own) the diff also says, by order of magnitude,
# how many live units it touches; POLICY_ADMIN_URL is the gateway's second listener, POLICY_REASON
# what its journal keeps. A gateway that does not tell costs the numbers, never the diff.
#
# Ends with 0 or 10 (fine), 20 (widens: a second reviewer), 2, 3 or 4 (refused).
set -uo pipefail

[ $# -eq 3 ] || { echo "usage: policy-review.sh OLD NEW OUT" >&2; exit 2; }
old=$1 new=$2 out=$3
read -ra gateway <<<"${GATEWAY:-gateway}"
mkdir -p "$out" || exit 2

"${gateway[@]}" policy fmt --check --folder "$new" || exit $?
"${gateway[@]}" policy lint --folder "$new" --format sarif >"$out/policy-lint.sarif" || exit $?
"${gateway[@]}" policy verify --folder "$new" --format junit >"$out/policy-verify.xml"
verified=$?

compare() {
  "${gateway[@]}" policy diff "$old" "$new" --format markdown "$@" >"$out/policy-diff.md"
}
compared=
if [ -n "${POLICY_TOKEN_FILE:-}" ]; then
  compare --live bucketed --reason "${POLICY_REASON:-check of a policy change}" \
    --token-file "$POLICY_TOKEN_FILE" ${POLICY_ADMIN_URL:+--admin "$POLICY_ADMIN_URL"}
  compared=$?
  case $compared in
    1 | 4)
      echo "policy-review: no live numbers; the diff is written without them" >&2
      compared=
      ;;
  esac
fi
if [ -z "$compared" ]; then
  compare
  compared=$?
fi
case $compared in
  0 | 10 | 20) ;;
  *) exit $compared ;;
esac
# A case that does not hold is told after the diff was written: the reader wants both.
[ $verified -eq 0 ] || exit $verified
exit $compared
