#!/usr/bin/env bash
# Installs a deb in a Debian with systemd as its first process, in a container, and lives with it: it starts without Redis, reloads, is frozen and ended by the
# watchdog, is upgraded while a job runs, drains for longer than TimeoutStopSec, and is removed.  packaging/systemd-check.sh OLD.deb NEW.deb
#
# The image comes from debootstrap; root gets it installed with CRONCLAVE_TEST_INSTALL=1. The container gets CAP_SYS_ADMIN and the cgroups of this machine.
set -euo pipefail
old=${1:?usage: systemd-check.sh OLD.deb NEW.deb} new=${2:?usage: systemd-check.sh OLD.deb NEW.deb}
image=cronclave-check/systemd name=cronclave-check-systemd-$$
stop() { echo "systemd-check: $1" >&2; exit 1; }

if ! docker image inspect "$image" >/dev/null 2>&1; then
	if ! command -v debootstrap >/dev/null; then
		[[ ${CRONCLAVE_TEST_INSTALL-} == 1 && $(id -u) == 0 ]] || stop "debootstrap is missing: apt-get install debootstrap"
		apt-get -qq install -y --no-install-recommends debootstrap >/dev/null
	fi
	. /etc/os-release
	root=$(mktemp -d)
	debootstrap --variant=minbase --include=systemd,dbus,redis-server "$VERSION_CODENAME" "$root" >"$root.log" || { tail "$root.log" >&2; stop "debootstrap failed"; }
	tar -C "$root" --exclude='./proc/*' --exclude='./sys/*' --exclude=./var/cache/apt -cf - . | docker import - "$image" >/dev/null
	rm -rf "$root" "$root.log"
fi
docker run -d --name "$name" --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
	-v /sys/fs/cgroup:/sys/fs/cgroup --tmpfs /run --tmpfs /run/lock --tmpfs /tmp "$image" /lib/systemd/systemd >/dev/null
trap 'docker rm -f "$name" >/dev/null' EXIT
inside() { docker exec "$name" sh -c "$1"; }
property() { inside "systemctl show -p $1 --value cronclave"; }
# await DESCRIPTION COMMAND waits for two minutes at most.
await() {
	for _ in $(seq 120); do
		if inside "$2" >/dev/null 2>&1; then return; fi
		sleep 1
	done
	inside 'systemctl status cronclave --no-pager; journalctl -u cronclave -n 20 -o cat --no-pager' >&2 || true
	stop "$1"
}
running='cronclave status long -c /etc/cronclave/jobs.toml | grep -q running'
await "systemd does not start" 'systemctl is-system-running | grep -E "running|degraded"'
docker cp "$old" "$name:/root/old.deb" >/dev/null
docker cp "$new" "$name:/root/new.deb" >/dev/null

inside 'dpkg -i /root/old.deb >/dev/null 2>&1'
[[ $(inside 'systemctl is-enabled cronclave || true') == disabled ]] || stop "the package enables its service"
docker exec -i "$name" sh -c 'cat >>/etc/cronclave/jobs.toml; sed -i "s/^\[defaults\].*/[replica]\ndrain_timeout = \"70s\"\n[defaults]/" /etc/cronclave/jobs.toml' <<'END'
[jobs.long]
schedule = "*/5 * * * * *"
command  = "id -un; exec sleep 30"
END
inside 'cronclave check --strict -c /etc/cronclave/jobs.toml >/dev/null; timeout 30 systemctl enable -q --now cronclave' || stop "systemctl start waits for Redis"
[[ $(property ActiveState) == active ]] || stop "without Redis the unit is $(property ActiveState)"
[[ $(property StatusText) == starting:* ]] || stop "without Redis the status is $(property StatusText)"
before=$(property MainPID)
inside "kill -STOP $before"
await "the watchdog does not end a replica that is frozen while it waits for Redis" "p=\$(systemctl show -p MainPID --value cronclave); [ \"\$p\" != $before ] && [ \"\$p\" != 0 ] && systemctl is-active cronclave"
inside 'systemd-run -q --unit=check-redis redis-server --bind 127.0.0.1 --maxmemory-policy noeviction'
await "not ready with Redis" 'systemctl show -p StatusText --value cronclave | grep "^scheduling "'
await "no job runs" "$running"
inside 'echo CRONCLAVE_REDIS=redis://127.0.0.1:6379/1 >/etc/cronclave/cronclave.env
	systemd-run -qP -p EnvironmentFile=/etc/cronclave/cronclave.env cronclave status --json -c /etc/cronclave/jobs.toml | tr -d " \\n" | grep "\"replicas\":\[\]"; rm /etc/cronclave/cronclave.env' >/dev/null ||
	stop "the command of docs/install.md does not read cronclave.env"
[[ $(inside 'cronclave history long -c /etc/cronclave/jobs.toml --output -n 5 2>/dev/null') == *cronclave* ]] || stop "the job runs as another user"
echo "systemd-check: started without Redis, and scheduling once Redis answers"

inside 'echo "# changed" >>/etc/cronclave/jobs.toml; systemctl reload cronclave'
await "no reload" 'journalctl -u cronclave -o cat --no-pager | grep "configuration reloaded"'
await "not active after the reload" 'systemctl is-active cronclave'

before=$(property MainPID)
inside "kill -STOP $before"
await "the watchdog does not end a frozen replica" "p=\$(systemctl show -p MainPID --value cronclave); [ \"\$p\" != $before ] && [ \"\$p\" != 0 ] && systemctl is-active cronclave"
echo "systemd-check: the watchdog ends a frozen replica"

await "no job runs" "$running"
before=$(property MainPID)
inside 'dpkg -i --force-confold /root/new.deb 2>&1' | grep "systemctl enable --now" && stop "an upgrade of an enabled service says that it is disabled"
await "the replica does not drain for an upgrade" 'journalctl -u cronclave -o cat --no-pager | grep \"drained\"'
await "not active after the upgrade" 'systemctl is-active cronclave'
[[ $(property MainPID) != "$before" ]] || stop "the old program runs"
await "no job runs" "$running"

inside 'mkdir -p /run/systemd/system/cronclave.service.d; printf "[Service]\nTimeoutStopSec=3s\n" >/run/systemd/system/cronclave.service.d/short.conf; systemctl daemon-reload'
begun=$SECONDS
inside 'systemctl stop cronclave'
[[ $(property Result) == success && $(property ExecMainStatus) == 0 ]] || stop "the drain ends with $(property Result)"
inside 'cronclave history long -c /etc/cronclave/jobs.toml -n 30' | grep -E 'canceled|lost' && stop "the drain ended a run"
echo "systemd-check: a drain took $((SECONDS - begun)) s, with TimeoutStopSec=3s, and lost no run"

inside 'systemctl start cronclave'
await "no job runs" "$running"
inside 'dpkg -r cronclave >/dev/null 2>&1'
inside '[ -e /etc/cronclave/jobs.toml ] && [ ! -e /usr/bin/cronclave ] && ! systemctl is-active -q cronclave' || stop "not removed"
docker exec "$name" dpkg -i /root/new.deb 2>&1 | grep "systemctl enable --now" >/dev/null || stop "a package that returns does not say that its service is disabled"
inside 'dpkg -P cronclave >/dev/null 2>&1; [ ! -e /etc/cronclave ] && [ ! -e /etc/systemd/system/multi-user.target.wants/cronclave.service ]' || stop "not purged"
echo "systemd-check: passed"
