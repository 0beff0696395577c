#!/usr/bin/env bash
# Runs three replicas of an image on a network of their own, with a real Redis, cuts one of them off, and counts the runs. Then it has the engine judge
# deploy/compose.  packaging/image-check.sh IMAGE_WITH_SHELL IMAGE
set -euo pipefail
cd "$(dirname "$0")/.."
shell=${1:?usage: image-check.sh IMAGE_WITH_SHELL IMAGE} image=${2:?usage: image-check.sh IMAGE_WITH_SHELL IMAGE}
redis=${CRONCLAVE_TEST_REDIS_IMAGE:-cronclave-test/redis:local}
docker image inspect "$redis" >/dev/null 2>&1 || integration/redis-image.sh "$redis"
stop() { echo "image-check: $1" >&2; exit 1; }
net=cronclave-check-$$ work=$(mktemp -d)
chmod 755 "$work"
containers=()
cleanup() {
	((${#containers[@]} == 0)) || docker rm -f "${containers[@]}" >/dev/null
	docker network rm "$net" >/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
docker network create "$net" >/dev/null
start() { # NAME IMAGE ARGUMENT...
	containers+=("$net-$1")
	docker run -d --name "$net-$1" --hostname "$1" --network "$net" --network-alias "$1" "${options[@]}" "${@:2}" >/dev/null
}
options=()
start redis "$redis" redis-server --appendonly yes --maxmemory-policy noeviction --protected-mode no
# The rights that the pods of the chart have.
options=(--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges -v "$work:/etc/cronclave:ro")
cat >"$work/jobs.toml" <<'END'
[redis]
url = "redis://redis:6379/0"
[jobs.shell]
schedule = "*/2 * * * * *"
command  = "id -u; ! touch /etc/x"
[jobs.plain]
schedule = "*/2 * * * * *"
command  = ["/usr/local/bin/cronclave", "version"]
END
chmod 644 "$work/jobs.toml"
for n in a b c; do start "$n" "$shell"; done
ask() { docker exec "$net-$1" /usr/local/bin/cronclave "${@:2}" -c /etc/cronclave/jobs.toml; }
# await DESCRIPTION COMMAND... waits for two minutes at most.
await() {
	for _ in $(seq 60); do
		if "${@:2}" >"$work/log" 2>&1; then return; fi
		sleep 2
	done
	cat "$work/log" >&2
	docker logs --tail 20 "$net-a" >&2
	stop "$1"
}
outcomes() { ask a history "$1" --json -n 50 | tr -d ' \n' | tr '{' '\n' | sed -n 's/.*"tick":"\([^"]*\)".*"replica":"\([^"]*\)".*"outcome":"\([^"]*\)".*/\1 \2 \3/p'; }
count_ok() { [[ $(outcomes "$1" | grep -c ' ok$') -ge $2 ]]; }
three_up() { ask a status | grep ': 3 replicas up,' >/dev/null; }
await "three replicas are not up" three_up
await "jobs do not run" count_ok shell 4
await "jobs do not run" count_ok plain 4

docker network disconnect "$net" "$net-c"
cut=$(date -u +%s)
later() { [[ $(outcomes plain | awk -v from="$(date -u -d "@$((cut + 2))" +%FT%T)" '$1 > from && $3 == "ok"' | wc -l) -ge 5 ]]; }
await "ticks do not go on without the replica that is cut off" later
docker network connect --alias c "$net" "$net-c"
await "the replica does not return" three_up

twice=$(for job in shell plain; do outcomes "$job" | awk -v job="$job" '$3 == "ok" || $3 == "running" { print job, $1 }'; done | sort | uniq -d)
[[ ! $twice ]] || stop "ticks that ran twice: $twice"
bad=$(for job in shell plain; do outcomes "$job" | grep -Ev ' (ok|running|abandoned|lost|missed)$' || true; done)
[[ ! $bad ]] || stop "outcomes: $bad"
docker stop -t 40 "$net-b" >/dev/null
[[ $(docker inspect -f '{{.State.ExitCode}}' "$net-b") == 0 ]] || stop "the drain ends with $(docker inspect -f '{{.State.ExitCode}}' "$net-b")"
[[ $(docker run --rm --read-only --cap-drop ALL "$image" version) == cronclave* ]] || stop "$image does not run"
if docker run --rm --entrypoint /bin/sh "$image" -c true 2>/dev/null; then stop "$image has a shell"; fi
echo "image-check: $(outcomes shell | wc -l) and $(outcomes plain | wc -l) ticks seen, none twice; one replica was cut off and came back; the drain ended with 0"

compose=(docker compose)
docker compose version >/dev/null 2>&1 || compose=(docker-compose)
if command -v "${compose[0]}" >/dev/null; then
	"${compose[@]}" -f deploy/compose/compose.yaml config >/dev/null
	echo "image-check: $("${compose[@]}" version --short) takes deploy/compose/compose.yaml"
else
	stop "neither docker compose nor docker-compose is here: apt-get install docker-compose"
fi
