#!/bin/sh
# Starts and restarts nothing: nodes of a cluster are upgraded one after the other, by their operator.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
