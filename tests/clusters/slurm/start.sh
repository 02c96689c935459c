#!/usr/bin/env bash
# A real Slurm with four virtual nodes on this machine, in a folder of its own:  start.sh FOLDER
# Nothing outside FOLDER is touched; commands find it by SLURM_CONF=FOLDER/slurm.conf. stop.sh FOLDER ends it.
# Needs root and Debian's slurm-wlm and munge.
set -euo pipefail
folder=$(realpath -m "$1")
mkdir -p "$folder"/{state,spool,log}
chmod 755 "$folder"
host=$(hostname -s)
port=$((20000 + RANDOM % 10000)) # so that two of them can be on one machine

(umask 077 && dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 status=none)
munged --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" --pid-file "$folder/munge.pid" \
  --seed-file "$folder/munge.seed" --log-file "$folder/log/munge.log"

cat >"$folder/slurm.conf" <<CONF
ClusterName=virtual
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=pmix
TmpFS=$folder/spool/%n
ReturnToService=2
KillWait=5
NodeName=n[1-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 4))] CPUs=8 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF

export SLURM_CONF="$folder/slurm.conf"
slurmctld
for node in n1 n2 n3 n4; do
  mkdir -p "$folder/spool/$node"
  slurmd -N "$node"
done
for _ in $(seq 180); do
  [ "$(sinfo --noheader --format %t%D)" = idle4 ] && exit 0
  sleep 1
done
echo "error: the nodes are not idle after three minutes; see $folder/log" >&2
sinfo >&2
exit 1
