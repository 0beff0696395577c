#!/bin/sh
# Builds a container image with a real Redis, or a Valkey, from the packages of this Debian or Ubuntu, or of another suite of the same archive, for
# machines whose container engine can pull nothing. The tests call it; by hand:
#
#	integration/redis-image.sh TAG [SUITE] [redis|valkey]
#
# Nothing is installed: the packages are downloaded, unpacked and imported as one layer. The image has no shell; it holds redis-server (also as
# redis-sentinel, redis-check-aof, redis-check-rdb), redis-cli and their libraries, whatever the engine.
set -eu

tag=${1:?usage: redis-image.sh TAG [SUITE] [redis|valkey]}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(dirname "$0")/redis-root.sh" "$work" "${2-}" "${3:-redis}" >/dev/null

tar -C "$work/root" --numeric-owner --owner=0 --group=0 -cf - . | docker import \
	-c 'ENV PATH=/usr/bin' -c 'WORKDIR /data' -c 'EXPOSE 6379' -c 'CMD ["redis-server"]' - "$tag" >/dev/null
docker run --rm "$tag" redis-server --version
