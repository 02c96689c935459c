#!/usr/bin/env bash
# A laboratory of hosts on this machine: real ssh and TCP between network namespaces, over links of a limited rate.
# The hosts share this machine's cores and memory.
#
#   scripts/lab.sh up N            start N hosts, h1 to hN; does nothing if they are there
#   scripts/lab.sh exec COMMAND    run a command on h0, from which studies are started
#   scripts/lab.sh on HOST COMMAND run a command on a host
#   scripts/lab.sh rate RATE       limit every host's link, both directions: 1000mbit, 20mbit, ...; none for no limit
#   scripts/lab.sh status          the hosts and the rate of their links
#   scripts/lab.sh down            end the hosts and all that runs on them; leaves nothing behind
#
# Each host has its own network, host name, address, sshd, ~/.ssh, and an empty file system on /mnt. All are connected to
# a bridge in h0's network namespace, so this machine's own network is not touched. All else, such as the project's
# folder, is shared. Needs root, and on Debian: apt install iproute2 openssh-server
set -Eeuo pipefail
lab=${LAB_DIR:-/run/candle-scaling-lab}
network=10.77.0
program=$(readlink -f "$0")

fail() { echo "lab.sh: error: $*" >&2; exit 1; }
[[ $lab =~ ^/[A-Za-z0-9._/+=@~-]+$ ]] || fail "LAB_DIR must be an absolute path without spaces, quotes and the like: $lab"
usage() { sed -n '2,/^set /p' "$program" | sed '$d;s/^# \{0,1\}//'; exit 2; }

# The process that keeps a host's namespaces. Its number may have passed to another process, so its network namespace is
# compared too: pid holds both.
holder() {
  local pid space
  read -r pid space 2>/dev/null <"$lab/$1/pid" || return 0
  if [ "$(readlink "/proc/$pid/ns/net" 2>/dev/null)" = "$space" ]; then echo "$pid"; fi
}
is_up() { [ -n "$(holder "$1")" ]; }
count() { local n=0; while is_up "h$((n + 1))"; do n=$((n + 1)); done; echo "$n"; }
on() {
  local host=$1
  shift
  [[ $host =~ ^h[0-9]+$ ]] || fail "there is no host $host; hosts are h0, h1, h2, ..."
  is_up "$host" || fail "there is no host $host; start hosts with: scripts/lab.sh up N"
  exec nsenter --target "$(holder "$host")" --net --uts --mount --wd="$PWD" -- "$@"
}
within() { (on "$@"); }

check_programs() {
  local program
  for program in unshare nsenter ip tc ssh ssh-keygen /usr/sbin/sshd; do
    command -v "$program" >/dev/null || fail "$program is missing; on Debian: apt install iproute2 openssh-server"
  done
}

make_keys() { # for N hosts and h0
  local i
  mkdir -p "$lab" /run/sshd
  chmod 700 "$lab"
  touch "$lab/laboratory"
  [ -d ~root/.ssh ] || { mkdir -m 700 ~root/.ssh && touch ~root/.ssh/.of_laboratories; }
  ssh-keygen -q -t ed25519 -N '' -C laboratory -f "$lab/key" </dev/null
  ssh-keygen -q -t ed25519 -N '' -C laboratory -f "$lab/hostkey" </dev/null
  echo "127.0.0.1 localhost" >"$lab/hosts"
  for i in $(seq 0 "$1"); do
    echo "$network.$((i + 1)) h$i" >>"$lab/hosts"
    echo "h$i,$network.$((i + 1)) $(cut -d' ' -f1,2 "$lab/hostkey.pub")" >>"$lab/known_hosts"
  done
}

# Every host uses Reno, which every kernel offers. Each kernel has its own default, and BBR sends faster than a token
# bucket lets pass and repeats what is dropped.
start_host() { # NAME
  mkdir -p "$lab/$1"
  setsid unshare --net --uts --mount --propagation private sh -c "
    set -e
    hostname $1
    ip link set lo up
    echo reno > /proc/sys/net/ipv4/tcp_congestion_control
    mount --bind '$lab/hosts' /etc/hosts
    mount -t tmpfs -o mode=0755 tmpfs /mnt
    mount -t tmpfs -o mode=0700 tmpfs ~root/.ssh
    cp '$lab/known_hosts' ~root/.ssh/known_hosts
    cp '$lab/key.pub' ~root/.ssh/authorized_keys
    cp '$lab/key' ~root/.ssh/id_ed25519
    chmod 600 ~root/.ssh/*
    echo \$\$ \$(readlink /proc/\$\$/ns/net) > '$lab/$1/pid.part'
    mv '$lab/$1/pid.part' '$lab/$1/pid'
    exec sleep infinity" </dev/null >"$lab/$1/log" 2>&1 &
  for _ in $(seq 400); do is_up "$1" && return; sleep 0.05; done
  cat "$lab/$1/log" >&2
  fail "$1 does not start"
}

start_bridge() {
  start_host h0
  within h0 ip link add br0 type bridge
  within h0 ip address add "$network.1/24" dev br0
  within h0 ip link set br0 up
}

connect() { # NUMBER: the host's end of the link has the bridge's name, as Horovod wants one name on all hosts
  within h0 ip link add "v$1" type veth peer name br0 netns "$(holder "h$1")"
  within h0 ip link set "v$1" master br0 up
  within "h$1" ip address add "$network.$(($1 + 1))/24" dev br0
  within "h$1" ip link set br0 up
}

start_sshd() { # HOST OPTION ...
  local host=$1
  shift
  within "$host" /usr/sbin/sshd -f /dev/null -h "$lab/hostkey" -E "$lab/$host/sshd.log" -o "PidFile=$lab/$host/sshd.pid" \
    -o StrictModes=no -o UsePAM=no -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \
    -o PermitRootLogin=prohibit-password -o MaxStartups=100 "$@"
}

up() {
  local i
  [[ ${1:-} =~ ^[1-9][0-9]?$ ]] || fail "lab.sh up N: N is the number of hosts, 1 to 99"
  [ -e "$lab/laboratory" ] || [ -z "$(ls -A "$lab" 2>/dev/null)" ] ||
    fail "LAB_DIR: $lab holds files of something else; give a new or empty folder"
  check_programs
  if [ "$(count)" = "$1" ] && is_up h0; then
    status
    return
  fi
  refuse_if_busy
  down
  exec 9<~root
  flock 9 # so that no other laboratory removes root's ~/.ssh before the hosts have mounted theirs on it
  trap 'flock -u 9; down; echo "lab.sh: error: the laboratory could not be started" >&2' EXIT
  make_keys "$1"
  start_bridge
  for i in $(seq "$1"); do
    start_host "h$i"
    connect "$i"
    start_sshd "h$i"
  done
  echo none >"$lab/rate"
  flock -u 9
  trap - EXIT
  status
}

# Whatever runs on the hosts: {host name and command}, without what keeps them.
running() {
  local host pid other
  for host in "$lab"/h[0-9]*/; do
    pid=$(holder "$(basename "$host")")
    [ -n "$pid" ] || continue
    for other in /proc/[0-9]*; do
      if [ "$other/ns/net" -ef "/proc/$pid/ns/net" ] && ! grep -qxE 'sleep|sshd.*' "$other/comm" 2>/dev/null; then
        echo "$(basename "$host"): $(tr '\0' ' ' <"$other/cmdline" 2>/dev/null)"
      fi
    done
  done
}

refuse_if_busy() {
  local first
  first=$(running | sed -n 1p)
  [ -z "$first" ] || fail "the hosts are in use ($first); end that, or run: scripts/lab.sh down"
}

# Bytes that may pass at once: those of 4 ms, as the kernel's timer needs some, and at least one large segment.
burst() { local bytes=$((${1%mbit} * 500)); echo $((bytes > 65536 ? bytes : 65536)); }

# Both ends of a link: what the host sends, and what it receives.
rate() {
  local i end host device
  [[ ${1:-} =~ ^([1-9][0-9]*mbit|none)$ ]] || fail "lab.sh rate RATE: 100mbit or the like, or none"
  for i in $(seq "$(count)"); do
    for end in "h0 v$i" "h$i br0"; do
      read -r host device <<<"$end"
      if [ "$1" = none ]; then
        within "$host" tc qdisc del dev "$device" root 2>/dev/null || true
      else
        within "$host" tc qdisc replace dev "$device" root tbf rate "$1" burst "$(burst "$1")" latency 50ms
      fi
    done
  done
  echo "$1" >"$lab/rate"
}

status() {
  local n
  n=$(count)
  if [ "$n" = 0 ]; then
    echo "no laboratory"
  else
    echo "$n hosts (h1 to h$n), link rate $(cat "$lab/rate")"
  fi
}

down() {
  local host pid other
  [ -e "$lab/laboratory" ] || return 0
  for host in "$lab"/h[0-9]*/; do
    pid=$(holder "$(basename "$host")")
    [ -n "$pid" ] || continue
    for other in /proc/[0-9]*; do # all that runs on the host, and last the process that keeps it
      if [ "${other#/proc/}" != "$pid" ] && [ "$other/ns/net" -ef "/proc/$pid/ns/net" ]; then
        kill -KILL "${other#/proc/}" 2>/dev/null || true
      fi
    done
    kill -KILL "$pid" 2>/dev/null || true
    for _ in $(seq 100); do is_up "$(basename "$host")" || break; sleep 0.05; done
  done
  remove_ssh_folder
  rm -rf "$lab"
}

# The folder that laboratories made goes with the last one: to remove it would take away what others mounted on it.
remove_ssh_folder() {
  exec 8<~root
  flock 8
  if [ -e ~root/.ssh/.of_laboratories ] && ! grep -qs " $(echo ~root)/.ssh " /proc/[0-9]*/mountinfo; then
    rm ~root/.ssh/.of_laboratories
    rmdir ~root/.ssh 2>/dev/null || true
  fi
  flock -u 8
}

[ "$(id -u)" = 0 ] || [ $# = 0 ] || fail "the laboratory needs root"
command=${1:-}
[ $# = 0 ] || shift
case $command in
  up) up "$@" ;;
  rate) rate "$@" ;;
  exec) [ $# -ge 1 ] || usage; on h0 "$@" ;;
  on) [ $# -ge 2 ] || usage; on "$@" ;;
  sshd) [ $# -ge 1 ] || usage; start_sshd "$@" ;;
  status) status ;;
  down) down ;;
  *) usage ;;
esac
