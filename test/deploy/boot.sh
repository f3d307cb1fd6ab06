#!/usr/bin/env bash
# boot.sh DIR PROGRAM UNITS: boots a systemd of its own on top of this machine's
# files, in namespaces, and stays with it. What it writes is in memory; of the
# machine it shares the network, the devices and the kernel.
#
#   DIR      an empty directory, whose name is also that of its cgroup
#   PROGRAM  atys
#   UNITS    the directory of unit files
#
# Nothing of the machine's own services is started: the units lose the targets
# that they stand on by default, and write their logs to /run/NAME.log.
set -euo pipefail
dir=$1 program=$2 units=$3
name=$(basename "$dir")

# A namespace of cgroups begins where a process is: a place of its own, in each
# hierarchy. Of version 1, cpuset lets nobody in before it is set up.
if [ -z "${ATYS_UNITS_INSIDE:-}" ]; then
	for h in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts); do
		mkdir -p "$h/$name"
		for setting in cpuset.cpus cpuset.mems; do
			[ "$(stat -fc %T "$h")" = cgroup2fs ] || [ ! -e "$h/$setting" ] || cat "$h/$setting" >"$h/$name/$setting"
		done
		echo $$ >"$h/$name/cgroup.procs"
	done
	ATYS_UNITS_INSIDE=1 exec unshare --pid --mount --uts --ipc --cgroup --fork --kill-child "$0" "$@"
fi

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$dir"
root=$dir/root
mkdir "$dir/upper" "$dir/work" "$root"
mount -t overlay -o lowerdir=/,upperdir="$dir/upper",workdir="$dir/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -o bind,ro "$root/proc/sys" "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
for d in run tmp; do mount -t tmpfs -o mode=755 tmpfs "$root/$d"; done
chmod 1777 "$root/tmp"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	version=2
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
	version=1
	mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
fi

install -m 755 "$program" "$root/usr/local/bin/atys"
install -m 644 "$units"/*.service "$root/etc/systemd/system/"
install -D -m 644 "$units/atys.sysusers" "$root/usr/lib/sysusers.d/atys.conf"
mkdir -p "$root/etc/atys"
chroot "$root" systemd-sysusers atys.conf
: >"$root/etc/fstab"
ln -sf /dev/null "$root/etc/systemd/system/network-online.target"
for unit in "$units"/*.service; do
	unit=$(basename "$unit" .service)
	mkdir "$root/etc/systemd/system/$unit.service.d"
	printf '[Unit]\nDefaultDependencies=no\n[Service]\nStandardOutput=append:/run/%s.log\nStandardError=append:/run/%s.log\n' "$unit" "$unit" \
		>"$root/etc/systemd/system/$unit.service.d/test.conf"
done
printf '[Unit]\nDefaultDependencies=no\n' >"$root/etc/systemd/system/waits.target"
# Whoever is in a chroot may make no namespaces of users, as PrivateUsers does.
cd "$root"
mkdir -p run/machine
pivot_root . run/machine
umount -l /run/machine
unified=$((version - 1))
exec env -i container=atys PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	SYSTEMD_PROC_CMDLINE="systemd.unified_cgroup_hierarchy=$unified systemd.legacy_systemd_cgroup_controller=1" \
	/lib/systemd/systemd --system --unit=waits.target --log-target=null
