#!/bin/sh
# Keeps /var/lib/carillon and the user that owns it, also when the package is purged.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
