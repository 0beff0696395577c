#!/bin/sh
# Writes both images of cronclave, without an engine:  packaging/image.sh DIR NAME VERSION linux/ARCH=PROGRAM...
#
# DIR/NAME.oci.tar has the program alone, and DIR/NAME-shell.oci.tar also busybox, for jobs whose command is a string. `docker load` reads both. Their date is
# SOURCE_DATE_EPOCH. CRONCLAVE_OCI names the tool if it is built already.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:?usage: image.sh DIR NAME VERSION linux/ARCH=PROGRAM...} name=${2:?} version=${3:?}
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tool=${CRONCLAVE_OCI-}
[ -n "$tool" ] || { tool=$work/oci && go -C "$root/packaging" build -o "$tool" ./oci; }
architectures=$(for program; do expr "$program" : 'linux/\([^=]*\)='; done)
# shellcheck disable=SC2086 # one word for each
"$root/packaging/busybox.sh" "$work" $architectures
"$tool" -version "$version" -date "${SOURCE_DATE_EPOCH:-0}" -license "$root/LICENSE" -out "$dir/$name.oci.tar" "$@"
"$tool" -version "$version" -date "${SOURCE_DATE_EPOCH:-0}" -license "$root/LICENSE" -out "$dir/$name-shell.oci.tar" -busybox "$work" "$@"
