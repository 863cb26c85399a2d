# Functions for the scripts of this folder: start processes, read their state, and wait for conditions with a limit.
# Sourced by busybox's sh.

run=/tmp/uview
mkdir -p $run

# The host agent's settings; a script may set others before it sources this.
: "${interval_ms:=200}" "${heartbeat_ms:=100}" "${lease_ms:=5000}" "${process_metrics:=true}" "${adaptive:=true}"

# Seconds of the guest's clock.
now() { cut -d. -f1 /proc/uptime; }

say() { echo "[$(now) s] $*"; }

fail() {
    say "FAILED: $*"
    for log in /tmp/*.log; do echo "--- $log"; tail -n 25 "$log"; done
    exit 1
}

# finding WHAT: reports a deviation that a busy machine may explain. `cargo lab rdma` prints it; it is a failure only
# with --strict.
finding() { say "FINDING: $*"; }

# Factor for all time limits, which are for an idle machine: the guest's processor is emulated, and the machine may be
# busy.
patience=6

# wait_for SECONDS WHAT COMMAND...: waits until COMMAND succeeds, at most for SECONDS of an idle machine.
wait_for() {
    limit=$(($(now) + $1 * patience))
    what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$(now)" -lt $limit ] || fail "timeout: $what"
        sleep 0.2
    done
    say "$what"
}

# The value of one metric of an agent: metric PORT NAME.
metric() { wget -q -O - "http://$1/metrics" | sed -n "s/^$2 //p"; }

nic() { metric 127.0.0.1:9703 "uview_nic_$1"; }
host() { metric 127.0.0.1:9702 "uview_host_$1"; }

# at_least COUNT COMMAND...: whether COMMAND prints a number of at least COUNT.
at_least() {
    least=$1
    shift
    value=$("$@")
    [ "${value:-0}" -ge "$least" ]
}

start_host_agent() {
    cat >/tmp/host.yaml <<END
runtime_dir: $run
lmap: {interval_ms: $interval_ms, adaptive: {enabled: $adaptive}}
services: {heartbeat_ms: $heartbeat_ms}
transport: verbs
control: {listen: '0.0.0.0:9700', insecure: true, lease_ms: $lease_ms}
process_metrics: {enabled: $process_metrics}
END
    ./uview host-agent --config /tmp/host.yaml >>/tmp/host.log 2>&1 &
    host_pid=$!
}

# start_nic_agent ADDRESS: starts it; ADDRESS is the host agent's.
start_nic_agent() {
    cat >/tmp/nic.yaml <<END
control: {address: '$1:9700', insecure: true}
transport: verbs
regions_socket: null
END
    ./uview nic-agent --config /tmp/nic.yaml >>/tmp/nic.log 2>&1 &
    nic_pid=$!
}

# start_service NAME PORT [NEXT...]: starts a service of the shop; its admin port, for faults, is PORT + 100.
start_service() {
    name=$1
    port=$2
    shift 2
    ./uview shop --service "$name" --listen "127.0.0.1:$port" --admin "127.0.0.1:$((port + 100))" --socket $run/services.sock \
        "$@" >>"/tmp/$name.log" 2>&1 &
    eval "${name}_pid=\$!"
}

start_shop() {
    start_service store 8001
    start_service cart 8002
    start_service catalogue 8003
    start_service payment 8004 --next store=127.0.0.1:8001
    start_service frontend 8005 --next cart=127.0.0.1:8002 --next catalogue=127.0.0.1:8003 --next payment=127.0.0.1:8004
    sleep 1
    ./uview load --target 127.0.0.1:8005 --per-second 10 >>/tmp/load.log 2>&1 &
}

status() { ./uview status --json --operators unix:$run/operators.sock; }
