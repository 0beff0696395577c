#!/usr/bin/env bash
# Builds the release twice, in folders of different names, with different users' settings and an empty build cache for the second, and compares
# byte for byte. Then it checks the signature and the packages. `make release-check` calls it.  PLATFORMS=linux/amd64 for less, and ONCE=1 for one build, which
# `make packages` checks.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export VERSION=${VERSION:-v0.0.1-check}

ssh-keygen -q -t ed25519 -N '' -C check -f "$work/key"
git clone -q "$root" "$work/a"
git clone -q "$root" "$work/another-folder"
(cd "$work" && CRONCLAVE_RELEASE_KEY=key a/packaging/release.sh "$work/first")
if [[ ${ONCE-} == 1 ]]; then
	"$root/packaging/check.sh" "$work/first" "$work/key.pub"
	exit
fi
mkdir "$work/home"
modules=$(go env GOMODCACHE) # read-only for a build, and checked against go.sum
(
	umask 077
	HOME=$work/home TZ=Asia/Tokyo LC_ALL='' LANG=de_DE.UTF-8 GOMODCACHE=$modules GOCACHE=$work/cache CRONCLAVE_RELEASE_KEY=$work/key \
		"$work/another-folder/packaging/release.sh" "$work/second" >/dev/null
)
diff -r "$work/first" "$work/second"
for image in "cronclave_${VERSION#v}.oci.tar" "cronclave_${VERSION#v}-shell.oci.tar"; do
	[[ -s $work/first/$image && -s $work/second/$image ]] || { echo "reproducible: no image $image" >&2; exit 1; }
done
echo "reproducible: $(ls "$work/first" | wc -l) files are equal"
"$root/packaging/check.sh" "$work/first" "$work/key.pub"
