#!/usr/bin/env bash
# Checks the files of a release:  packaging/check.sh DIR PUBLIC_KEY
#
# The signature, the sums, the packages by lintian and rpm, the unit by systemd-analyze, the installed program and its files. With
# CRONCLAVE_TEST_INSTALL=1, root on Debian or Ubuntu gets what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:?usage: check.sh DIR PUBLIC_KEY} key=${2:?usage: check.sh DIR PUBLIC_KEY}
stop() { echo "check: $1" >&2; exit 1; }
need() { # COMMAND PACKAGE
	command -v "$1" >/dev/null && return
	[[ ${CRONCLAVE_TEST_INSTALL-} == 1 && $(id -u) == 0 ]] || stop "$1 is missing: apt-get install $2 (CRONCLAVE_TEST_INSTALL=1 lets root do it)"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq install -y --no-install-recommends "$2" >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$2" >/dev/null; }
}
need lintian lintian
need rpm rpm
need man man-db
need systemd-analyze systemd
need ssh-keygen openssh-client
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf 'releases %s\n' "$(cat "$key")" >"$work/signers"
ssh-keygen -q -Y verify -f "$work/signers" -I releases -n cronclave-release -s "$dir/SHA256SUMS.sig" <"$dir/SHA256SUMS"
(cd "$dir" && sha256sum --quiet -c SHA256SUMS)
unlisted=$(cd "$dir" && ls | grep -vxF -e SHA256SUMS -e SHA256SUMS.sig -f <(awk '{print $2}' SHA256SUMS) || true)
[[ ! $unlisted ]] || stop "not in SHA256SUMS: $unlisted"
echo "check: signature and sums hold"

for deb in "$dir"/*.deb; do
	lintian --fail-on error --tag-display-limit 0 "$deb"
	dpkg-deb --info "$deb" conffiles | grep -x /etc/cronclave/jobs.toml >/dev/null || stop "$deb: jobs.toml is no conffile"
done
for rpm in "$dir"/*.rpm; do
	rpm -K --nosignature "$rpm" >/dev/null
	rpm -qp --qf '%{NAME} %{VERSION} %{ARCH} %{BUILDHOST}\n' "$rpm"
	[[ $(rpm -qpc "$rpm") == /etc/cronclave/jobs.toml ]] || stop "$rpm: jobs.toml is no configuration file"
	rpm -qpl "$rpm" | grep -x /usr/lib/systemd/system/cronclave.service >/dev/null || stop "$rpm: no unit"
done
echo "check: deb and rpm are sound"

for archive in "$dir"/*.tar.gz; do
	sbom=${archive%.tar.gz}.cdx.json
	[[ -s $sbom ]] || stop "$archive has no SBOM"
	platform=${archive%.tar.gz} arch=${archive##*_}
	arch=${arch%.tar.gz} platform=${platform%_*}
	for fact in "\"value\": \"${platform##*_}\"" "\"value\": \"$arch\"" pkg:golang/github.com/redis/go-redis/v9@ pkg:golang/github.com/spf13/cobra@; do
		grep -F "$fact" "$sbom" >/dev/null || stop "$sbom lacks $fact"
	done
	! grep -F pkg:golang/github.com/testcontainers "$sbom" >/dev/null || stop "$sbom has what only tests use"
done

# What docker load reads, and what the layout has, are the same files.
for image in "$dir"/*.oci.tar; do
	read_file() { tar -xOf "$image" "$1"; }
	[[ $(read_file oci-layout) == *'"imageLayoutVersion"'* ]] || stop "$image is no OCI layout"
	index=$(read_file index.json | grep -o 'sha256:[0-9a-f]*')
	platforms=$(read_file "blobs/sha256/${index#sha256:}" | tr -d ' \n' | grep -o '"architecture":"[a-z0-9]*","os":"linux"' | sort | tr -d '\n')
	expected=$(for archive in "$dir"/*_linux_*.tar.gz; do archive=${archive##*_} && echo "\"architecture\":\"${archive%.tar.gz}\",\"os\":\"linux\""; done | sort | tr -d '\n')
	[[ $platforms == "$expected" ]] || stop "$image has the platforms $platforms, and the archives $expected"
	for config in $(read_file manifest.json | grep -o '"Config":"[^"]*"' | cut -d'"' -f4); do
		read_file "$config" | grep -F '"User":"65532:65532"' >/dev/null || stop "$image runs as another user"
	done
	for blob in $(tar -tf "$image" | grep '^blobs/sha256/.'); do
		echo "${blob##*/}  $blob" >>"$work/blobs"
	done
	mkdir "$work/image"
	tar -xf "$image" -C "$work/image"
	(cd "$work/image" && sha256sum --quiet -c "$work/blobs")
	rm -r "$work/image" "$work/blobs"
done
echo "check: the images are sound"

# The package of this machine's architecture, unpacked: its program, its pages, its completions, its unit.
deb=$(ls "$dir"/*_"$(dpkg --print-architecture)".deb) || stop "no deb for this machine"
dpkg-deb -x "$deb" "$work/root"
program=$work/root/usr/bin/cronclave
"$program" version
{ ldd "$program" 2>&1 || :; } | grep 'not a dynamic executable' >/dev/null || stop "the program is not static"
"$program" check "$work/root/etc/cronclave/jobs.toml"
MANPAGER=cat man --warnings -l "$work"/root/usr/share/man/man1/*.1.gz >/dev/null 2>"$work/man.log"
[[ ! -s $work/man.log ]] || { cat "$work/man.log" >&2; stop "man pages with faults"; }
for command in $("$program" help | awk '/^Available Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'); do
	[[ $command == help || -s $work/root/usr/share/man/man1/cronclave-$command.1.gz ]] || stop "no man page of $command"
done
bash -n "$work/root/usr/share/bash-completion/completions/cronclave"
# Each unit starts the program from where it is: the package's from the package, the archive's from where docs/install.md has it copied.
unit=$work/root/lib/systemd/system/cronclave.service
started_by() { sed -n 's/^ExecStart=\([^ ]*\) .*/\1/p' "$1"; }
[[ -x $work/root$(started_by "$unit") ]] || stop "the unit of the package starts $(started_by "$unit"), which it does not have"
for archive in "$dir"/*.tar.gz; do
	tar -xzOf "$archive" ./systemd/cronclave.service >"$work/archived.service"
	place=$(started_by "$work/archived.service")
	grep -F "copy \`cronclave\` to \`${place%/cronclave}\`" docs/install.md >/dev/null || stop "the unit of $archive starts $place, and docs/install.md has the program copied elsewhere"
done
# The unit names files of an installed package, so they are looked up below the unpacked one.
sed "s|$(started_by "$unit")|$program|" "$unit" >"$work/cronclave.service"
for drop_in in '' root strict; do
	rm -rf "$work/cronclave.service.d"
	mkdir "$work/cronclave.service.d"
	[[ ! $drop_in ]] || cp "deploy/systemd/$drop_in.conf" "$work/cronclave.service.d/"
	systemd-analyze verify --man=no "$work/cronclave.service" 2>&1 | grep -F cronclave && stop "the unit has faults (drop-in: $drop_in)"
	systemd-analyze security --offline=yes "$work/cronclave.service" 2>/dev/null | tail -n 1
done
echo "check: passed"
