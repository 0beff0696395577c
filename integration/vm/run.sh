#!/bin/sh
# Runs the tests of processes in a small virtual machine whose kernel has all controllers in cgroups of version 2, and where nobody else is in ours.
# `make vm` calls it; by hand:  integration/vm/run.sh [FLAG OF THE TEST BINARIES...], such as -test.v -test.run=Limits
#
# It wants Linux on x86-64, qemu-system-x86_64, a static busybox and a kernel: CRONCLAVE_TEST_KERNEL, or the newest in /boot that we may read. With
# CRONCLAVE_TEST_INSTALL=1 root on Debian or Ubuntu has qemu installed where it is missing, and the others unpacked into bin/vm.
set -eu
cd "$(dirname "$0")/../.."
work=$PWD/bin/vm root=$PWD/bin/vm/root
mkdir -p "$work"

stop() { echo "vm: $1" >&2; exit 1; }
may() { # get what is missing
	[ "${CRONCLAVE_TEST_INSTALL:-}" = 1 ] && [ "$(id -u)" = 0 ] && command -v apt-get >"$work/log" || stop "$1 is missing; CRONCLAVE_TEST_INSTALL=1 has root get it by apt-get"
}
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o DPkg::Lock::Timeout=60 "$@"; }
get() { { apt "$@" || { apt update && apt "$@"; }; } >"$work/log" 2>&1 || { cat "$work/log" >&2; stop "apt-get $* failed"; }; }
unpack() (cd "$work" && rm -f ./*.deb && get download "$1" && dpkg-deb --fsys-tarfile ./*.deb | tar -x "./$2" && rm ./*.deb) # a folder of a package
newest() { find "$1" -maxdepth 1 -name 'vmlinuz-*' -readable 2>"$work/log" | sort -V | tail -n 1; }

[ "$(uname -sm)" = "Linux x86_64" ] || stop "this needs Linux on x86-64"
command -v qemu-system-x86_64 >"$work/log" || { may qemu-system-x86_64; get install -y --no-install-recommends qemu-system-x86; }
busybox=$work/bin/busybox
if [ ! -x "$busybox" ] && [ -x "$(command -v busybox)" ] && ! ldd "$(command -v busybox)" >"$work/log" 2>&1; then busybox=$(command -v busybox); fi
[ -x "$busybox" ] || { may "a static busybox"; unpack busybox-static bin; }
kernel=${CRONCLAVE_TEST_KERNEL:-$(newest /boot)}
kernel=${kernel:-$(newest "$work/boot")}
if [ -z "$kernel" ]; then
	may "a kernel (CRONCLAVE_TEST_KERNEL)"
	unpack "$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p')" boot
	kernel=$(newest "$work/boot")
fi

# The machine is busybox, but for the shell and what busybox lacks or does differently: these are ours.
rm -rf "$root"
mkdir -p "$root/bin" "$root/etc" "$root/tests" "$root/proc" "$root/sys" "$root/dev" "$root/tmp"
ln -s bin "$root/sbin"
ln -s . "$root/usr"
for name in sh id nice setpriv; do
	path=$(command -v $name)
	# shellcheck disable=SC2046 # one word for each library
	cp -L --parents "$path" $(ldd "$path" | grep -o '/[^ ]*') "$root"
done
cp "$busybox" "$root/bin/busybox"
for name in $("$busybox" --list); do [ -e "$root/bin/$name" ] || ln -s busybox "$root/bin/$name"; done
printf '%s:/tmp:/bin/sh\n' root:x:0:0: daemon:x:1:1: nobody:x:65534:65534: >"$root/etc/passwd"
printf '%s:\n' root:x:0 daemon:x:1 nogroup:x:65534 >"$root/etc/group"
cp integration/vm/init "$root/init"
for name in internal/process internal/warden cmd/cronclave; do CGO_ENABLED=0 go test -c -o "$root/tests/" "./$name"; done
# One test at a time: some hold processes to deadlines, and an emulated processor is slow.
for user in 0 65534; do
	for tests in process.test warden.test 'cronclave.test -test.run=Limits|OutOfMemory'; do
		echo "$user /tests/$tests -test.timeout=25m -test.parallel=1 $*"
	done
done >"$root/plan"
(cd "$root" && find . | "$busybox" cpio -o -H newc 2>"$work/log" | gzip -1 >"$work/image")

# Inside of another virtual machine KVM may be there and not work: then the processor is emulated.
for accel in kvm tcg; do
	timeout 60m qemu-system-x86_64 -machine accel=$accel -cpu max -smp 2 -m 1024 -nodefaults -display none -no-reboot -serial stdio -kernel "$kernel" \
		-initrd "$work/image" -append 'console=ttyS0 loglevel=3 panic=-1 rdinit=/init' </dev/null 2>"$work/$accel" | sed -u 's/\r$//' | tee "$work/log"
	if grep '^vm: ' "$work/log" >"$work/result"; then break; fi
	echo "vm: it does not start with accel=$accel: $(head -n 1 "$work/$accel")"
done
grep -q '^vm: all passed' "$work/result" || { cat "$work/$accel" >&2; stop "not all has passed"; }
