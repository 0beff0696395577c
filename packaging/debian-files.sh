#!/bin/sh
# Writes what Debian's policy wants in a package: copyright and changelogs. release.sh calls it:  debian-files.sh VERSION DIR
set -eu
version=${1:?} dir=${2:?}
{
	printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: cronclave\nSource: https://github.com/cronclave/cronclave\n'
	printf 'Comment: cronclave version --licenses prints the licences of the libraries in the program.\n\n'
	printf 'Files: *\nCopyright: %s\nLicense: Expat\n\nLicense: Expat\n' "$(sed -n 's/^Copyright (c) //p' LICENSE)"
	sed '1,4d; s/^$/./; s/^/ /' LICENSE
} >"$dir/copyright"
gzip -9n <CHANGELOG.md >"$dir/changelog.gz"
gzip -9n >"$dir/changelog.Debian.gz" <<END
cronclave ($version-1) stable; urgency=medium

  * Version $version. See changelog.gz.

 -- The cronclave authors <cronclave@users.noreply.github.com>  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
END
