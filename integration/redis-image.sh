#!/bin/sh
# Builds a container image with a real Redis from the packages of this Debian or Ubuntu, for machines whose
# container engine can pull nothing. The tests call it; by hand:  integration/redis-image.sh TAG
#
# Nothing is installed: the packages are downloaded, unpacked and imported as one layer. The image has no shell;
# it holds redis-server (also as redis-sentinel, redis-check-aof, redis-check-rdb), redis-cli and their libraries.
set -eu

tag=${1:?usage: redis-image.sh TAG}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/deb" "$work/root"

# libraries prints the library packages below redis-tools, which has the server: Debian builds one executable that
# acts by the name it is called with. The tools that installing would need (dpkg, debconf ...) are left out.
libraries() {
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
		--no-enhances redis-tools | grep '^lib' | grep -v : | sort -u
}

download() { (cd "$work/deb" && apt-get -qq -o APT::Sandbox::User=root download redis-tools $(libraries)); }

# A fresh machine has no package lists yet, or stale ones.
download 2>"$work/log" || { apt-get -qq update && download; } || { cat "$work/log" >&2; exit 1; }

cd "$work/root"
mkdir -p usr/bin usr/lib usr/lib64 etc data tmp
for d in bin lib lib64; do ln -s "usr/$d" "$d"; done
chmod 1777 data tmp
for deb in "$work"/deb/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --exclude='./usr/share/*' -f -
done
for name in redis-server redis-sentinel; do ln -sf redis-check-rdb "usr/bin/$name"; done
printf 'root:x:0:0::/:/none\n' >etc/passwd
printf 'hosts: files dns\n' >etc/nsswitch.conf

tar --numeric-owner --owner=0 --group=0 -cf - . | docker import \
	-c 'ENV PATH=/usr/bin' -c 'WORKDIR /data' -c 'EXPOSE 6379' -c 'CMD ["redis-server"]' - "$tag" >/dev/null
docker run --rm "$tag" redis-server --version
