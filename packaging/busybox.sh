#!/bin/sh
# Writes DIR/busybox_ARCH and DIR/copyright from a pinned package of Debian, for the image with a shell:  packaging/busybox.sh DIR ARCH...
#
# Once Debian has a newer package, change the version and the sums below. To build an old release again, put its packages into a folder, and name it by
# CRONCLAVE_DEBS.
set -eu
dir=${1:?usage: busybox.sh DIR ARCH...}
shift
version=1.35.0-4+deb12u1+b1
sum() {
	case $1 in
	amd64) echo 3d3fdbe91d4660c873e14b092c213fe81c1da6362daa236eb25d0171eb108744 ;;
	arm64) echo 732c9135564fc71337e0e05fb4da4d11e6c28c1834bce3e405e575afef2a52f5 ;;
	*) echo "busybox.sh: no sum for $1" >&2; exit 1 ;;
	esac
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for arch; do
	name=busybox-static_${version}_$arch.deb deb=$work/$arch.deb sum=$(sum "$arch")
	if [ -n "${CRONCLAVE_DEBS-}" ]; then
		cp "$CRONCLAVE_DEBS/$name" "$deb"
	else
		for archive in $(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u); do
			/usr/lib/apt/apt-helper -q -o APT::Sandbox::User=root download-file "${archive}pool/main/b/busybox/$name" "$deb" "SHA256:$sum" >"$work/log" 2>&1 && break
			rm -f "$deb"
		done
		[ -e "$deb" ] || { cat "$work/log" >&2; echo "busybox.sh: the archive of Debian has no $name: see the head of this script" >&2; exit 1; }
	fi
	echo "$sum  $deb" | sha256sum --quiet -c - >&2
	dpkg-deb -x "$deb" "$work/$arch"
	cp "$work/$arch/bin/busybox" "$dir/busybox_$arch"
	cp "$work/$arch/usr/share/doc/busybox-static/copyright" "$dir/copyright"
done
