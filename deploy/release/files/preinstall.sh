#!/bin/sh
# Creates the user before files are unpacked, because /var/lib/carillon belongs to it.
set -e
getent group carillon >/dev/null || groupadd --system carillon
getent passwd carillon >/dev/null || useradd --system --gid carillon --no-create-home --home-dir /var/lib/carillon \
  --shell /usr/sbin/nologin --comment "Carillon server" carillon
