#!/usr/bin/env bash
# The part of systemd-check.sh that runs in a Debian with systemd as its first process. It installs /root/old.deb, upgrades it to /root/new.deb, and removes it.
set -euo pipefail
stop() { echo "systemd-check: $1" >&2; exit 1; }
said() { echo "systemd-check: $1"; }
export CRONCLAVE_CONFIG=/etc/cronclave/jobs.toml
property() { systemctl show -p "$1" --value cronclave; }
# await DESCRIPTION COMMAND waits for two minutes at most.
await() {
	for _ in $(seq 120); do
		if bash -c "$2" >/dev/null 2>&1; then return; fi
		sleep 1
	done
	{ systemctl status cronclave --no-pager || true; journalctl -u cronclave -n 20 -o cat --no-pager; } >&2
	stop "$1"
}
active='systemctl is-active cronclave'
running='cronclave status long | grep -q running'
replaced() { echo "p=\$(systemctl show -p MainPID --value cronclave); [ \"\$p\" != $1 ] && [ \"\$p\" != 0 ] && $active"; }
# use DROP-IN... restarts the service with these examples of the package.
use() {
	rm -rf /etc/systemd/system/cronclave.service.d
	mkdir /etc/systemd/system/cronclave.service.d
	for drop_in; do cp "/usr/share/doc/cronclave/examples/$drop_in.conf" /etc/systemd/system/cronclave.service.d; done
	systemctl daemon-reload
	systemctl restart cronclave || { journalctl -u cronclave -n 20 -o cat --no-pager >&2; stop "it does not start with $*"; }
	await "not scheduling with $*" 'systemctl show -p StatusText --value cronclave | grep "^scheduling "'
}
# run_job JOB prints the output of a run of its own, whatever its outcome.
run_job() { cronclave trigger "$1" --wait 2>/dev/null || true; }
version=$(systemctl --version | awk '{ print $2; exit }')
cgroups=$(stat -fc %T /sys/fs/cgroup)

dpkg -i /root/old.deb >/dev/null 2>&1
[[ $(systemctl is-enabled cronclave || true) == disabled ]] || stop "the package enables its service"
[[ $(stat -c %U /var/lib/cronclave) == cronclave ]] || stop "the package does not make /var/lib/cronclave"
sed -i 's/^\[defaults\].*/[replica]\ndrain_timeout = "70s"\n[defaults]/' $CRONCLAVE_CONFIG
cat >>$CRONCLAVE_CONFIG <<'END'
[jobs.long]
schedule = "*/5 * * * * *"
command  = "id -un; exec sleep 30"
[jobs.who]
schedule = "@yearly"
command  = "id -un; touch /var/lib/cronclave/by-$(id -un); touch /usr/written 2>&1 || :"
[jobs.stray]
schedule = "@yearly"
command  = "env -i setsid sleep 1000 & wait"
END
cronclave check --strict >/dev/null
timeout 30 systemctl enable -q --now cronclave || stop "systemctl start waits for Redis"
[[ $(property ActiveState) == active ]] || stop "without Redis the unit is $(property ActiveState)"
[[ $(property StatusText) == starting:* ]] || stop "without Redis the status is $(property StatusText)"
before=$(property MainPID)
kill -STOP "$before"
await "the watchdog does not end a replica that is frozen while it waits for Redis" "$(replaced "$before")"
systemd-run -q --unit=check-redis redis-server --bind 127.0.0.1 --maxmemory-policy noeviction
await "not scheduling with Redis" 'systemctl show -p StatusText --value cronclave | grep "^scheduling "'
await "no job runs" "$running"
echo CRONCLAVE_REDIS=redis://127.0.0.1:6379/1 >/etc/cronclave/cronclave.env
systemd-run -qP -p EnvironmentFile=/etc/cronclave/cronclave.env cronclave status --json -c $CRONCLAVE_CONFIG | tr -d ' \n' | grep '"replicas":\[\]' >/dev/null ||
	stop "the command of docs/install.md does not read cronclave.env"
rm /etc/cronclave/cronclave.env
[[ $(run_job who) == *cronclave* ]] || stop "a job runs as another user"
said "started without Redis, and scheduling once Redis answers"

# In a cgroup of version 2, which is the replica's own by Delegate=yes, each run has a cgroup. Limits also need the controllers, which a machine may have in version 1.
isolation() { journalctl -u cronclave -o cat --no-pager | grep -o '"isolation":"[^"]*"' | tail -n 1; }
isolation=$(isolation)
if [[ $isolation == '"isolation":"cgroup v2 at '*/system.slice/cronclave.service* ]]; then
	cronclave trigger stray >/dev/null
	await "the job does not run" 'pgrep -f "^sleep 1000"'
	cronclave cancel stray >/dev/null
	await "a process that left the session of its run survives it" '! pgrep -f "^sleep 1000"'
	said "a process that left its session ends with its run"
else
	[[ $cgroups != cgroup2fs && $isolation == '"isolation":"process groups '* ]] || stop "$isolation"
	said "NOT CHECKED: processes that left their session ($isolation)"
fi
if [[ $cgroups == cgroup2fs ]]; then
	cat >>$CRONCLAVE_CONFIG <<-'END'
		[jobs.greedy]
		schedule = "@yearly"
		command  = "exec tail /dev/zero"
		limits   = { memory = "32MiB", pids = 10 }
		[jobs.forks]
		schedule = "@yearly"
		command  = "for n in 1 2 3 4 5 6 7 8 9 10; do sleep 5 & done; wait"
		limits   = { pids = 5 }
	END
	await "the jobs with limits are not taken" 'cronclave status greedy'
	run_job greedy >/dev/null
	cronclave history greedy --json | tr -d '\n' | grep -i 'memory' >/dev/null || stop "a run is not killed beyond its memory: $(cronclave history greedy --json)"
	run_job forks >/dev/null
	[[ $(cronclave history forks --output) == *'annot fork'* ]] || stop "a run has more processes than its limit: $(cronclave history forks --output)"
	said "the limits of jobs hold"
else
	said "NOT CHECKED: limits of jobs, since /sys/fs/cgroup is $cgroups here"
fi

echo "# changed" >>$CRONCLAVE_CONFIG
systemctl reload cronclave
await "no reload" 'journalctl -u cronclave -o cat --no-pager | grep "configuration reloaded"'
await "not active after the reload" "$active"

before=$(property MainPID)
kill -STOP "$before"
await "the watchdog does not end a frozen replica" "$(replaced "$before")"
said "the watchdog ends a frozen replica"

await "no job runs" "$running"
before=$(property MainPID)
dpkg -i --force-confold /root/new.deb 2>&1 | grep "systemctl enable --now" && stop "an upgrade of an enabled service says that it is disabled"
await "the replica does not drain for an upgrade" 'journalctl -u cronclave -o cat --no-pager | grep \"drained\"'
await "not active after the upgrade" "$active"
[[ $(property MainPID) != "$before" ]] || stop "the old program runs"
await "no job runs" "$running"

mkdir -p /run/systemd/system/cronclave.service.d
printf '[Service]\nTimeoutStopSec=3s\n' >/run/systemd/system/cronclave.service.d/short.conf
systemctl daemon-reload
begun=$SECONDS
systemctl stop cronclave
[[ $(property Result) == success && $(property ExecMainStatus) == 0 ]] || stop "the drain ends with $(property Result)"
cronclave history long -n 30 | grep -E 'canceled|lost' && stop "the drain ended a run"
said "a drain took $((SECONDS - begun)) s, with TimeoutStopSec=3s, and lost no run"
sed -i '/^\[jobs.long\]/,/^command/s/sleep 30/sleep 3/' $CRONCLAVE_CONFIG # the rest need not wait for drains

use strict
[[ $(isolation | cut -c1-24) == "${isolation:0:24}" ]] || stop "with strict.conf: $(isolation)"
[[ $(run_job who) == *cronclave*'Read-only file system'* ]] || stop "with strict.conf a job writes to /usr, or does not run: $(run_job who)"
use root
[[ $(run_job who) == root* && $(stat -c %U /var/lib/cronclave) == cronclave ]] || stop "with root.conf: $(run_job who), /var/lib/cronclave of $(stat -c %U /var/lib/cronclave)"
sed -i 's/^\[defaults\].*/[defaults]\nuser = "cronclave"\ninherit_env = false/' $CRONCLAVE_CONFIG
systemctl reload cronclave
await "a job of root.conf does not run as the user of [defaults]" 'cronclave trigger who --wait 2>/dev/null | grep -x cronclave'
said "the drop-ins strict.conf and root.conf do what they say"
if ((version >= 253)); then
	use notify-reload
	echo "# changed again" >>$CRONCLAVE_CONFIG
	timeout 60 systemctl reload cronclave || stop "systemctl reload does not return with notify-reload.conf"
	[[ $(property Type) == notify-reload && $(property ActiveState) == active ]] || stop "notify-reload.conf gives $(property Type), $(property ActiveState)"
	said "notify-reload.conf: systemctl reload returns"
else
	said "NOT CHECKED: notify-reload.conf, which needs systemd 253 (this is $version)"
fi

await "no job runs" "$running"
dpkg -r cronclave >/dev/null 2>&1
[[ -e $CRONCLAVE_CONFIG && ! -e /usr/bin/cronclave ]] && ! systemctl is-active -q cronclave || stop "not removed"
dpkg -i /root/new.deb 2>&1 | grep "systemctl enable --now" >/dev/null || stop "a package that returns does not say that its service is disabled"
dpkg -P cronclave >/dev/null 2>&1
[[ ! -e /etc/cronclave && ! -e /etc/systemd/system/multi-user.target.wants/cronclave.service ]] || stop "not purged"
said "passed with systemd $version"
