# The guest with the NIC agent, which says what comes next. WHICH is "first", or "second" after the guest was replaced by a fresh one.
. ./common.sh

mkdir -p /tmp/www
httpd -p 10.0.0.2:8080 -h /tmp/www

there() { ping -c1 -w1 10.0.0.1; }
is_done() { [ "$(timeout 3 wget -q -O - http://10.0.0.1:8080/done)" = "$1" ]; }

count=0
# ask SECONDS WORD: has the other guest do it, and waits until it is done.
ask() {
    count=$((count + 1))
    echo "$2-$WHICH-$count" >/tmp/www/word.new
    mv /tmp/www/word.new /tmp/www/word
    wait_for "$1" "done: $2" is_done "$2-$WHICH-$count"
}

# More regions fetched than before, soon.
goes_on() {
    before=$(nic fetched_regions_total)
    wait_for 20 "$1: regions are fetched" at_least $((${before:-0} + 50)) nic fetched_regions_total
}

missed() {
    say "missed: $(nic failed_regions_total) regions, $(nic failed_batches_total) batches, $(nic late_ticks_total) late ticks;" \
        "connections $(nic connected_queue_pairs_total), revoked $(nic revoked_regions_total), not taken $(nic foreign_messages_total)"
}

armed() { [ "$(nic 'lmaps{state="armed"}')" = 5 ]; }
attached() { [ "$(nic attached_regions)" = 10 ]; }

wait_for 60 "the other guest is there" there
start_nic_agent 10.0.0.1
wait_for 60 "the queue pair is connected" at_least 1 nic connected_queue_pairs_total
wait_for 60 "all ten regions are attached" attached
goes_on "start"
if [ "$WHICH" = second ]; then
    missed
    ask 30 report
    ask 30 end
    exit 0
fi

wait_for 120 "all services are armed" armed
missed
ask 120 fault

connections=$(nic connected_queue_pairs_total)
ask 40 kill-host
wait_for 30 "connected again" at_least $((connections + 1)) nic connected_queue_pairs_total
wait_for 30 "all ten regions are attached" attached
goes_on "after kill -9 of the host agent"
armed || fail "what was learnt is lost"
missed

kill -9 $nic_pid
sleep 1
start_nic_agent 10.0.0.1
wait_for 30 "connected again" at_least 1 nic connected_queue_pairs_total
wait_for 30 "all ten regions are attached" attached
goes_on "after kill -9 of the NIC agent"
missed

ask 40 kill-service
wait_for 30 "all ten regions are attached" attached
goes_on "after kill -9 of a service"
missed

connections=$(nic connected_queue_pairs_total)
failed=$(nic failed_batches_total)
ip link set eth0 down
say "the wire is cut"
sleep 10
ip link set eth0 up
say "the wire is whole"
wait_for 30 "connected again" at_least $((connections + 1)) nic connected_queue_pairs_total
wait_for 60 "all ten regions are attached" attached
goes_on "after 10 s without a wire"
at_least $((failed + 10)) nic failed_batches_total || fail "the counters do not say what was missed"
missed
ask 30 report
grep -v INFO /tmp/nic.log | head -40
exit 0
