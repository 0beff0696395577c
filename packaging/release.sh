#!/usr/bin/env bash
# Builds a release of the commit that is checked out into a folder (bin/release). `make release` calls it; by hand:
#
#	CRONCLAVE_RELEASE_KEY=~/.ssh/release packaging/release.sh [DIR]
#
# The same commit gives the same bytes in every folder and for every user. Changes that are not committed are no part of it.
#
#	CRONCLAVE_RELEASE_KEY   file of the ssh key that signs SHA256SUMS (or of a public key in ssh-agent); none leaves it unsigned
#	VERSION                 default: the tag of the commit
#	PLATFORMS               default: all of linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
set -euo pipefail
stop() { echo "release: $1" >&2; exit 1; }
key=${CRONCLAVE_RELEASE_KEY-}
[[ ! $key || $key == none ]] || key=$(realpath "$key") # the folder changes below
cd "$(dirname "$0")/.."
[[ $key ]] || stop "set CRONCLAVE_RELEASE_KEY to the file of the ssh key that signs, or to none"
[[ $key == none || -r $key ]] || stop "the key $key cannot be read"
version=${VERSION:-$(git describe --tags --exact-match HEAD 2>/dev/null)} || stop "the commit has no tag; name a version: VERSION=v1.2.3"
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || stop "the version $version is not of the form v1.2.3"
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
mkdir -p "${1:-bin/release}"
out=$(cd "${1:-bin/release}" && pwd)
[[ ! $(ls -A "$out") ]] || stop "$out is not empty"

# Everything that could differ between two machines and change a byte.
umask 022
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export CGO_ENABLED=0 GOTOOLCHAIN=go1.26.8 GOFLAGS='-mod=readonly -buildvcs=false -trimpath' GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOFIPS140=off

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tools" "$work/bin"
# A clone, because the SBOM takes its version from the tag.
git clone -q . "$work/source" 2>"$work/log" || { cat "$work/log" >&2; stop "git clone failed"; }
cd "$work/source"
git tag -f "$version" >"$work/log"
name=cronclave_${version#v}

build() { # PLATFORM
	GOOS=${1%/*} GOARCH=${1#*/} go build -ldflags "-s -w -buildid= -X main.version=$version" -o "$work/bin/cronclave_${1/\//_}" ./cmd/cronclave
}
# archive NAME FOLDER writes a folder as NAME.tar.gz.
archive() {
	tar -C "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --format=ustar -cf - . | gzip -9n >"$out/$1.tar.gz"
}

echo "release: $version, tools"
for tool in github.com/goreleaser/nfpm/v2/cmd/nfpm github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod ./manpages ./oci; do
	go -C packaging build -o "$work/tools/" "$tool"
done
native=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
for platform in $(printf '%s\n' $platforms "$native" | sort -u); do
	echo "release: $platform"
	build "$platform"
	[[ $platform != darwin/* ]] || GOOS=darwin GOARCH=${platform#*/} go vet ./cmd/cronclave
done

# What all packages share is written once, by the program of this machine.
program=$work/bin/cronclave_${native/\//_}
shared=$work/shared
mkdir -p "$shared/man" "$shared/completions"
"$work/tools/manpages" -date "$SOURCE_DATE_EPOCH" -dir "$shared/man" "$program"
gzip -9n "$shared"/man/*
for shell in bash zsh fish; do "$program" completion "$shell" >"$shared/completions/cronclave.$shell"; done
"$program" version --licenses >"$shared/licenses"
packaging/debian-files.sh "${version#v}" "$shared"
"$program" check --no-env packaging/files/jobs.toml

for platform in $platforms; do
	echo "release: packages of $platform"
	of=$work/bin/cronclave_${platform/\//_}
	folder=$work/folder
	rm -rf "$folder"
	mkdir "$folder"
	cp "$of" "$folder/cronclave"
	cp -r LICENSE README.md jobs.example.toml deploy/systemd "$shared/man" "$shared/completions" "$folder"
	sed -i 's|^ExecStart=/usr/bin/|ExecStart=/usr/local/bin/|' "$folder/systemd/cronclave.service" # what no package brings is in /usr/local
	archive "${name}_${platform/\//_}" "$folder"
	# What a platform's program has of the libraries, and of their packages, depends on the platform.
	GOOS=${platform%/*} GOARCH=${platform#*/} "$work/tools/cyclonedx-gomod" app -json -main cmd/cronclave -noserial -notimestamp -std -licenses \
		-output "$out/${name}_${platform/\//_}.cdx.json" . 2>"$work/sbom.log" || { cat "$work/sbom.log" >&2; stop "the SBOM failed"; }
	[[ $platform == linux/* ]] || continue
	cp "$of" "$shared/cronclave"
	for packager in deb rpm; do
		ARCH=${platform#*/} VERSION=${version#v} SHARED=$shared "$work/tools/nfpm" package --config packaging/nfpm.yaml --packager "$packager" --target "$out" >/dev/null
	done
done

images=()
for platform in $platforms; do [[ $platform != linux/* ]] || images+=("$platform=$work/bin/cronclave_${platform/\//_}"); done
((${#images[@]} == 0)) || CRONCLAVE_OCI=$work/tools/oci packaging/image.sh "$out" "$name" "${version#v}" "${images[@]}"

cd "$out"
sha256sum -- * >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
if [[ $key == none ]]; then
	echo 'release: NOT SIGNED, because CRONCLAVE_RELEASE_KEY is none'
else
	ssh-keygen -q -Y sign -n cronclave-release -f "$key" SHA256SUMS
fi
ls -l "$out"
