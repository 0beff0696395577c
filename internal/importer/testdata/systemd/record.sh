#!/bin/sh
# Records what systemd makes of each expression in UTC: the number and the SHA-256 of its next instants, up to 1,000 and up to 2098, as lines of Unix seconds.
# usage: ./record.sh > recorded.txt
set -eu
cd "$(dirname "$0")"
base='2026-11-28 00:00:00 UTC'
echo "# systemd-analyze calendar --iterations=1000 --base-time='$base' EXPRESSION, with TZ=UTC: $(systemd-analyze --version | head -n 1)"
while IFS= read -r expression; do
	if ! out=$(TZ=UTC systemd-analyze calendar --iterations=1000 --base-time="$base" "$expression" 2>/dev/null); then
		printf 'invalid - %s\n' "$expression"
		continue
	fi
	seconds=$(printf '%s\n' "$out" | sed -nE 's/^ *(Next elapse|Iteration #[0-9]+|Iter\. #[0-9]+): [A-Za-z]+ (.*)$/\2/p' | TZ=UTC date -f - +%s | awk '$1 < 4070908800')
	printf '%d %s %s\n' "$(printf '%s\n' "$seconds" | wc -l)" "$(printf '%s\n' "$seconds" | sha256sum | cut -c1-16)" "$expression"
done < expressions.txt
