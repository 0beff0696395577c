#!/bin/sh
# Prints the arguments of go test, quoted for a shell, for one tier of the tests in some packages of the module in a folder of the repository:
#
#	integration/tiers.sh slow FOLDER PACKAGE...    those that call testtier.Slow, which -short skips
#	integration/tiers.sh whole FOLDER PACKAGE...   those that ask testtier.RaceEnabled, so that they do less under the race detector
#
# A package without such a test is left out. integration/architecture proves that each test belongs to a tier that is run.
set -eu
cd "$(dirname "$0")/../$2"
case $1 in
slow) call='^\t(testtier\.S|s)low\(t\)$' ;;
whole) call='testtier\.RaceEnabled' ;;
*) echo "no tier is called $1" >&2; exit 64 ;;
esac
shift 2
for package; do
	[ -z "$(ls "$package"/*_test.go 2>/dev/null)" ] || awk -v call="$call" -v package="$package" '
		/^func / { name = /^func Test/ ? $2 : ""; sub(/\(.*/, "", name) }
		name != "" && $0 ~ call { print name, package; name = "" }' "$package"/*_test.go
done | awk '
	{ names = names (NR > 1 ? "|" : "") $1 }
	!seen[$2]++ { packages = packages " " $2 }
	END { if (NR == 0) exit 1; print "-run \047^(" names ")$\047" packages }'
