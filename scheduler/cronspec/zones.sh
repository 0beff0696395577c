#!/bin/sh
# Builds zoneinfo.zip from the IANA data that Debian's security updates carry, which
# have new rules within days of a law. Newer data: `apt-cache policy tzdata` names the
# version, `sha256sum` of the package its digest; change both here, run
# `go generate ./scheduler/cronspec`, and name the zones whose ticks move in the
# changelog. The result depends on the package alone.
set -eu
package=tzdata
version=2026f-0+deb12u1
digest=3254eb870c8a949518214805aee5e4276af7699988ea8b9a3a583cd0f1eab31c

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
apt-get -qq download "$package=$version"
echo "$digest  $(echo ./*.deb)" | sha256sum --check --quiet
dpkg-deb --extract ./*.deb data
cd "$here"
go run ../../cmd/mkzones "$work/data/usr/share/zoneinfo" zoneinfo.zip
