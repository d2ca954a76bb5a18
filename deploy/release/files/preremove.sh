#!/bin/sh
# Stops the server when the package is removed, not when it is upgraded. $1: remove (deb), 0 (rpm).
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl disable --now carillon.service
    fi
    ;;
esac
