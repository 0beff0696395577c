#!/bin/sh
# Builds a container image from scratch:  packaging/image.sh PROGRAM TAG [shell]
#
# PROGRAM is a static cronclave for Linux. The image has it, the CA certificates of this machine, and a user without rights. `shell` adds busybox, for jobs whose
# command is a string. Only the engine's `docker build` is needed, and no image is pulled.
set -eu
cd "$(dirname "$0")/.."
program=${1:?usage: image.sh PROGRAM TAG [shell]} tag=${2:?usage: image.sh PROGRAM TAG [shell]}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/rootfs
mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/etc/cronclave" "$root/usr/share/cronclave" "$root/tmp"
chmod 1777 "$root/tmp"
install -m 755 "$program" "$root/usr/local/bin/cronclave"
install -m 644 LICENSE "$root/usr/share/cronclave/LICENSE"
certificates=/etc/ssl/certs/ca-certificates.crt
[ -s "$certificates" ] || { echo 'image.sh: install ca-certificates' >&2; exit 1; }
install -m 644 "$certificates" "$root$certificates"
printf 'root:x:0:0::/:/sbin/nologin\ncronclave:x:65532:65532::/tmp:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\ncronclave:x:65532:\n' >"$root/etc/group"
if [ "${3-}" = shell ]; then
	busybox=${BUSYBOX:-$(command -v busybox || :)}
	if [ -z "$busybox" ] || ! { ldd "$busybox" 2>&1 || :; } | grep -q 'not a dynamic'; then # Debian's own is dynamic
		mkdir "$work/deb"
		(cd "$work/deb" && { apt-get -qq -o APT::Sandbox::User=root download busybox-static || { apt-get -qq update && apt-get -qq -o APT::Sandbox::User=root download busybox-static; }; }) >&2
		dpkg-deb -x "$work"/deb/*.deb "$work/deb/root"
		busybox=$work/deb/root/bin/busybox
	fi
	mkdir "$root/bin"
	install -m 755 "$busybox" "$root/bin/busybox"
	for applet in $("$busybox" --list); do [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"; done
fi
find "$root" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
cp deploy/docker/Dockerfile "$work/"
docker build -q -t "$tag" --build-arg "VERSION=${VERSION:-dev}" "$work" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
packed=$(docker save "$tag" | gzip -6 | wc -c)
echo "image.sh: $tag, $((packed / 1000)) kB packed, user $(docker image inspect -f '{{.Config.User}}' "$tag")"
[ "$packed" -le 15000000 ] || { echo 'image.sh: more than 15 MB packed' >&2; exit 1; }
