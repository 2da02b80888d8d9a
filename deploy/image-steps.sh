#!/bin/sh
# The steps of the final images that run as root.
#   system                tini, and the user 10001
#   packages PACKAGE...   other Debian packages
#   finish                the list of what is in the image (SBOM)
set -eu

packages() {
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log
}

case "$1" in
system)
    command -v tini >/dev/null || packages tini
    groupadd --gid 10001 tidegate
    useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin tidegate
    ;;
packages)
    shift
    packages "$@"
    ;;
finish)
    /opt/tidegate/bin/python -B /opt/steps/sbom.py >/opt/tidegate/sbom.cdx.json
    ;;
*)
    echo "unknown step: $1" >&2
    exit 2
    ;;
esac
