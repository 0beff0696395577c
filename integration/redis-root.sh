#!/bin/sh
# Unpacks a real Redis, or a Valkey, with its libraries from the packages of this Debian or Ubuntu, or of another suite of the same archive:
#
#	integration/redis-root.sh DIR [SUITE] [redis|valkey]      for example: integration/redis-root.sh bin/engines/trixie-valkey trixie valkey
#
# Nothing is installed. DIR/root is the root of a container without a shell. DIR/bin has redis-server and redis-cli for this machine, which run with
# the C library of their suite.
set -eu

dir=${1:?usage: redis-root.sh DIR [SUITE] [redis|valkey]} suite=${2-} kind=${3:-redis}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
root=$dir/root
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/deb"

# For another suite, use separate apt lists, so that apt on this machine is not affected.
if [ -n "$suite" ]; then
	. /etc/os-release
	archive=$(apt-get indextargets --format '$(RELEASE) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
		awk -v own="$VERSION_CODENAME" '$1 == own || $2 == own { print $3; exit }')
	: "${archive:?apt knows no archive of $VERSION_CODENAME}"
	mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
	touch "$work/apt/status"
	echo "deb $archive $suite main" >"$work/apt/sources.list"
	cat >"$work/apt/apt.conf" <<-END
		Dir::State "$work/apt";
		Dir::State::status "$work/apt/status";
		Dir::Cache "$work/apt";
		Dir::Etc::SourceList "$work/apt/sources.list";
		Dir::Etc::SourceParts "/dev/null";
		Acquire::Languages "none";
		APT::Sandbox::User "root";
	END
	export APT_CONFIG="$work/apt/apt.conf"
fi

# libraries prints the library packages that redis-tools depends on. redis-tools contains the server: in Debian one executable acts as server or tool, by the
# name it is called with. Packages that only an installation needs (dpkg, debconf ...) are left out.
libraries() {
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
		--no-enhances "$kind-tools" | grep -E '^z?lib' | grep -v : | sort -u
}

download() { (cd "$work/deb" && apt-get -qq -o APT::Sandbox::User=root download "$kind-tools" $(libraries)); }

# A fresh machine has no package lists or stale ones, and the separate lists of another suite are empty.
download 2>"$work/log" || { apt-get -qq update && download; } || { cat "$work/log" >&2; exit 1; }

rm -rf "$root" "$dir/bin"
mkdir -p "$root" "$dir/bin"
cd "$root"
mkdir -p usr/bin usr/lib usr/lib64 etc data tmp
for d in bin lib lib64; do ln -s "usr/$d" "$d"; done
chmod 1777 data tmp
for deb in "$work"/deb/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --exclude='./usr/share/*' -f -
done
for name in redis-server redis-sentinel redis-check-aof; do ln -sf "$kind-check-rdb" "usr/bin/$name"; done
[ "$kind" = redis ] || ln -sf "$kind-cli" usr/bin/redis-cli
printf 'root:x:0:0::/:/none\n' >etc/passwd
printf 'hosts: files dns\n' >etc/nsswitch.conf

loader=$(echo "$root"/usr/lib/*-linux-gnu*/ld-linux*.so.?)
for name in redis-server redis-cli; do
	# The loader would take a missing library from this machine, but a container has no such library.
	missing=$("$loader" --library-path "${loader%/*}" --list "$root/usr/bin/$name" | grep ' => ' | grep -vF " => $root/" || :)
	[ -z "$missing" ] || { echo "redis-root.sh: libraries missing from the downloaded packages: $missing" >&2; exit 1; }
	printf '#!/bin/sh\nexec "%s" --argv0 %s --library-path "%s" "%s" "$@"\n' "$loader" "$name" "${loader%/*}" "$root/usr/bin/$name" >"$dir/bin/$name"
	chmod 755 "$dir/bin/$name"
done
"$dir/bin/redis-server" --version
