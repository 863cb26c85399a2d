# A service adds and removes series, while the NIC agent is killed and restarted, is down for longer than its lease, or
# is stopped for as long and continued.
interval_ms=5
lease_ms=1500
. ./common.sh

start_host_agent
wait_for 20 "the host agent listens" wget -q -O - http://127.0.0.1:9702/healthz
start_nic_agent 10.0.0.1
wait_for 30 "the queue pair is connected" at_least 1 nic connected_queue_pairs_total
./lab part guest churn --socket $run/services.sock --operators unix:$run/operators.sock --cycles 400 --hasty || fail "the negative control was not detected"
./lab part guest churn --socket $run/services.sock --operators unix:$run/operators.sock --cycles 1000 >/tmp/churn.out 2>&1 &
churn=$!

fenced=$(host fenced_workers_total)
deaths=0
while kill -0 $churn 2>/dev/null; do
    wait_for 30 "regions are attached" at_least 1 nic attached_regions
    sleep 3
    case $((deaths % 3)) in
    0)
        say "the NIC agent is killed, another one takes its place"
        kill -9 $nic_pid
        start_nic_agent 10.0.0.1
        ;;
    1)
        say "the NIC agent is killed, and missed for longer than its lease"
        kill -9 $nic_pid
        sleep 3
        start_nic_agent 10.0.0.1
        ;;
    2)
        say "the NIC agent hangs for longer than its lease, and goes on"
        kill -STOP $nic_pid
        sleep 3
        kill -CONT $nic_pid
        ;;
    esac
    deaths=$((deaths + 1))
    wait_for 30 "the queue pair is connected" at_least 1 nic queue_pair_connected
    tail -n 1 /tmp/churn.out
done
wait $churn || fail "$(tail -n 3 /tmp/churn.out)"
cat /tmp/churn.out
say "the NIC agent died or hung $deaths times, workers were fenced $(($(host fenced_workers_total) - ${fenced:-0})) times," \
    "runs of slots were released $(host released_slot_runs_total) times, samples of a changed layout: $(nic 'discarded_samples_total{reason="generation"}')"
# At least once of each kind.
[ $deaths -ge 3 ] || fail "the NIC agent died too seldom to prove anything"
[ $deaths -ge 6 ] || finding "the NIC agent died only $deaths times"
at_least 2 host fenced_workers_total || fail "no worker was fenced"
at_least 900 host released_slot_runs_total || fail "slots were not released"
exit 0
