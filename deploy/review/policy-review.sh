#!/usr/bin/env bash
# The check of a policy change, for any CI system.
#
#   policy-review.sh OLD NEW OUT
#
# OLD and NEW are policy folders (the reviewed-against and the changed one), OUT a folder for
# policy-diff.md, policy-verify.xml (JUnit) and policy-lint.sarif. GATEWAY names the command; it
# must come from the OLD revision (README.md says why).
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

"${gateway[@]}" policy diff "$old" "$new" --format markdown >"$out/policy-diff.md"
compared=$?
case $compared in
  0 | 10 | 20) ;;
  *) exit $compared ;;
esac
# A case that does not hold is told after the diff was written: the reader wants both.
[ $verified -eq 0 ] || exit $verified
exit $compared
