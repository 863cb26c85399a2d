# Both agents and the shop in one guest, with regions read by RDMA through the soft device; then with another address;
# then with a host agent that can lock little memory.
. ./common.sh

./uview check >/tmp/check
cat /tmp/check
grep -q 'fine  *RDMA devices  *rxe0/1' /tmp/check || fail "check does not find the device"
start_host_agent
wait_for 20 "the host agent listens" wget -q -O - http://127.0.0.1:9702/healthz
start_shop
# The address of RDMA will change, that of the control connection will not.
start_nic_agent 127.0.0.1
wait_for 30 "the queue pair is connected" at_least 1 nic connected_queue_pairs_total
wait_for 30 "regions are fetched" at_least 100 nic fetched_regions_total
[ "$(nic 'transport_info{name="verbs"}')" = 1 ] || fail "the transport is not named"
[ "$(grep -c 'the host agent chose how regions are fetched transport="verbs"' /tmp/nic.log)" = 1 ] || fail "the log does not have it once"
./uview status --operators unix:$run/operators.sock >/tmp/status
cat /tmp/status
grep -q 'worker 0 connected, verbs,' /tmp/status || fail "the status does not name the transport"

# Another address: both ends keep their devices open, and exchange their new addresses when they reconnect.
connections=$(nic connected_queue_pairs_total)
ip addr add 10.0.0.3/24 dev eth0
ip addr del 10.0.0.1/24 dev eth0
connected_again() { at_least $((connections + 1)) nic connected_queue_pairs_total && at_least 1 nic queue_pair_connected; }
wait_for 30 "connected again, at another address" connected_again
fetched=$(nic fetched_regions_total)
wait_for 30 "regions are fetched from there" at_least $((fetched + 50)) nic fetched_regions_total
# The device's first address: the new one, or one that the guest's network has assigned.
last=$(grep "connected to the host's memory" /tmp/nic.log | tail -n 1)
echo "$last"
case $last in *10.0.0.1) fail "that is the old address" ;; esac
[ "$(grep -c 'RDMA device device=' /tmp/nic.log)" = 1 ] || fail "the device was opened again"
at_least 1 host lost_devices_total && fail "the host agent has opened its device again"

# The same as an ordinary user with a limit of 40 KiB of locked memory: only some regions can be registered.
kill -9 $host_pid
chmod 666 /dev/infiniband/*
rm -rf $run
mkdir -m 777 $run
echo 'user:x:1000:1000::/:/bin/sh' >/etc/passwd
(
    ulimit -l 40
    exec su user -c "./uview host-agent --config /tmp/host.yaml" >>/tmp/host-user.log 2>&1
) &
wait_for 20 "an ordinary user's host agent listens" wget -q -O - http://127.0.0.1:9702/healthz
wait_for 30 "some regions cannot be registered" at_least 1 host unregistered_regions_total
wait_for 30 "the others are attached" at_least 1 nic attached_regions
fetched=$(nic fetched_regions_total)
wait_for 30 "and fetched" at_least $((fetched + 20)) nic fetched_regions_total
[ "$(nic attached_regions)" -lt 10 ] || fail "all regions are attached: the limit had no effect"
./uview status --operators unix:$run/operators.sock >/tmp/status
cat /tmp/status
grep -q 'region-.*RLIMIT_MEMLOCK is 40960 bytes' /tmp/status || fail "the status does not name the region and the limit"
grep -v INFO /tmp/host-user.log | head -5
exit 0
