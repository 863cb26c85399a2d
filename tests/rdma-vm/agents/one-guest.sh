# Both agents and the shop in one guest, regions read by RDMA through the soft device; then a host agent that may lock little memory.
. ./common.sh

./uview check
start_host_agent
wait_for 20 "the host agent listens" wget -q -O - http://127.0.0.1:9702/readyz
start_shop
start_nic_agent 10.0.0.1
wait_for 30 "the queue pair is connected" at_least 1 nic connected_queue_pairs_total
wait_for 30 "regions are fetched" at_least 100 nic fetched_regions_total
[ "$(nic 'transport_info{name="verbs"}')" = 1 ] || fail "the transport is not named"
./uview status --operators 127.0.0.1:9701

# The same as an ordinary user with 40 KiB of locked memory: some regions can be registered, others cannot.
kill -9 $host_pid
chmod 666 /dev/infiniband/*
rm -rf $run
mkdir -m 777 $run
echo 'user:x:1000:1000::/:/bin/sh' >/etc/passwd
(
    ulimit -l 40
    exec su user -c "./uview host-agent --config /tmp/host.yaml" >>/tmp/host-user.log 2>&1
) &
wait_for 20 "an ordinary user's host agent listens" wget -q -O - http://127.0.0.1:9702/readyz
wait_for 30 "some regions cannot be registered" at_least 1 host unregistered_regions_total
wait_for 30 "the others are attached" at_least 1 nic attached_regions
fetched=$(nic fetched_regions_total)
wait_for 30 "and fetched" at_least $((fetched + 20)) nic fetched_regions_total
[ "$(nic attached_regions)" -lt 10 ] || fail "all regions are attached: nothing was tried"
./uview status --operators 127.0.0.1:9701 >/tmp/status
cat /tmp/status
grep -q 'region-.*RLIMIT_MEMLOCK is 40960 bytes' /tmp/status || fail "the status does not name the region and the limit"
grep -v INFO /tmp/host-user.log | head -5
exit 0
