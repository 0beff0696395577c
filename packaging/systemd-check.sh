#!/usr/bin/env bash
# Installs a deb in a Debian with systemd as its first process, and lives with it: it starts without Redis, reloads, is frozen and ended by the watchdog, is
# upgraded while a job runs, drains for longer than TimeoutStopSec, runs with each drop-in, and is removed. systemd-body.sh has the steps.
#
#	packaging/systemd-check.sh OLD.deb NEW.deb            in a container, with CAP_SYS_ADMIN and the cgroups of this machine
#	packaging/systemd-check.sh OLD.deb NEW.deb vm         in a virtual machine, whose cgroups are of version 2: the limits of jobs, too
#
# SUITE names the Debian (default: the one of this machine); it comes from debootstrap, into bin/systemd. With CRONCLAVE_TEST_INSTALL=1 root gets what is missing.
# The machine wants a kernel that can be read: CRONCLAVE_TEST_KERNEL, or the newest in /boot; otherwise one is unpacked.
set -euo pipefail
old=${1:?usage: systemd-check.sh OLD.deb NEW.deb [vm]} new=${2:?usage: systemd-check.sh OLD.deb NEW.deb [vm]} where=${3:-container}
old=$(realpath "$old") new=$(realpath "$new")
cd "$(dirname "$0")/.."
stop() { echo "systemd-check: $1" >&2; exit 1; }
. /etc/os-release
suite=${SUITE:-$VERSION_CODENAME}
mkdir -p bin/systemd
root=$PWD/bin/systemd/$suite.tar
work=$(mktemp -d)
name=
cleanup() {
	[[ ! $name ]] || docker rm -f "$name" >/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
need() { # COMMAND PACKAGE
	command -v "$1" >/dev/null && return
	[[ ${CRONCLAVE_TEST_INSTALL-} == 1 && $(id -u) == 0 ]] || stop "$1 is missing: apt-get install $2 (CRONCLAVE_TEST_INSTALL=1 lets root do it)"
	apt-get -qq install -y --no-install-recommends "$2" >/dev/null
}
if [[ ! -e $root ]]; then
	need debootstrap debootstrap
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps,redis-server "$suite" "$work/root" >"$work/log" || { tail "$work/log" >&2; stop "debootstrap failed"; }
	tar -C "$work/root" --exclude='./proc/*' --exclude='./sys/*' --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./usr/share/doc/*' \
		--exclude='./usr/share/locale/*' --exclude='./usr/share/man/*' -cf "$root.new" .
	mv "$root.new" "$root"
	rm -rf "$work/root"
fi

if [[ $where == container ]]; then
	docker import "$root" "cronclave-check/systemd:$suite" >/dev/null
	name=cronclave-check-systemd-$$
	docker run -d --name "$name" --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
		-v /sys/fs/cgroup:/sys/fs/cgroup --tmpfs /run --tmpfs /run/lock --tmpfs /tmp "cronclave-check/systemd:$suite" /lib/systemd/systemd >/dev/null
	for _ in $(seq 60); do
		! docker exec "$name" systemctl is-system-running 2>/dev/null | grep -E 'running|degraded' >/dev/null || break
		sleep 1
	done
	docker cp "$old" "$name:/root/old.deb" >/dev/null
	docker cp "$new" "$name:/root/new.deb" >/dev/null
	docker cp packaging/systemd-body.sh "$name:/root/body.sh" >/dev/null
	docker exec "$name" /root/body.sh
	exit
fi

[[ $(uname -sm) == "Linux x86_64" ]] || stop "the virtual machine needs Linux on x86-64"
need qemu-system-x86_64 qemu-system-x86
newest() { find "$1" -maxdepth 1 -name 'vmlinuz-*' -readable 2>/dev/null | sort -V | tail -n 1; }
kernel=${CRONCLAVE_TEST_KERNEL:-$(newest /boot)}
mkdir -p bin/vm/boot
kernel=${kernel:-$(newest bin/vm/boot)}
if [[ ! $kernel ]]; then
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p')
	(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb --fsys-tarfile ./*.deb | tar -x ./boot)
	cp "$work"/boot/vmlinuz-* bin/vm/boot
	kernel=$(newest bin/vm/boot)
fi
packaging/busybox.sh "$work" amd64
mkdir "$work/root"
tar -C "$work/root" -xf "$root"
cp "$old" "$work/root/root/old.deb"
cp "$new" "$work/root/root/new.deb"
cp packaging/systemd-body.sh "$work/root/root/body.sh"
echo cronclave-check >"$work/root/etc/hostname"
: >"$work/root/etc/fstab"
cat >"$work/root/etc/systemd/system/check.service" <<'END'
[Service]
Type=oneshot
ExecStart=/bin/bash -c '/root/body.sh >/dev/console 2>&1 && echo "systemd-check: all passed" >/dev/console; sync; systemctl poweroff -ff'
TimeoutStartSec=infinity
[Install]
WantedBy=multi-user.target
END
mkdir -p "$work/root/etc/systemd/system/multi-user.target.wants"
ln -s ../check.service "$work/root/etc/systemd/system/multi-user.target.wants/check.service"
ln -sf /dev/null "$work/root/etc/systemd/system/redis-server.service" # the check starts one of its own
# systemd makes mount namespaces for services (ProtectSystem), which the kernel's first root does not allow. So the machine begins in a small one.
mkdir -p "$work/first/bin" "$work/first/new"
tar -C "$work/root" -cf "$work/first/root.tar" .
rm -r "$work/root"
cp "$work/busybox_amd64" "$work/first/bin/busybox"
printf '%s\n' '#!/bin/busybox sh' '/bin/busybox mount -t tmpfs -o size=75%,mode=755 root /new' '/bin/busybox tar -C /new -xf /root.tar' \
	'/bin/busybox rm /root.tar' 'exec /bin/busybox switch_root /new /lib/systemd/systemd' >"$work/first/init"
chmod 755 "$work/first/init" "$work/first/bin/busybox"
(cd "$work/first" && find . | "$work/busybox_amd64" cpio -o -H newc 2>/dev/null | gzip -1 >"$work/image")
rm -r "$work/first"
# Inside of another virtual machine KVM may be there and not work: then the processor is emulated.
for accel in kvm tcg; do
	timeout 60m qemu-system-x86_64 -machine accel=$accel -cpu max -smp 2 -m 2048 -nodefaults -display none -no-reboot -serial stdio -kernel "$kernel" \
		-initrd "$work/image" -append 'console=ttyS0 loglevel=3 panic=-1 rdinit=/init systemd.show_status=0' </dev/null 2>"$work/$accel" | sed -u 's/\r$//' | tee "$work/log" || true
	! grep '^systemd-check: ' "$work/log" >/dev/null || break
	echo "systemd-check: it does not start with accel=$accel: $(head -n 1 "$work/$accel")"
done
grep '^systemd-check: all passed' "$work/log" >/dev/null || stop "not all has passed"
