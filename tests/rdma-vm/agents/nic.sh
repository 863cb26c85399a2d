# The guest with the NIC agent, which says what comes next. WHICH is "first", or "second" after the guest was replaced by a fresh one.
. ./common.sh

mkdir -p /tmp/www
httpd -p 10.0.0.2:8080 -h /tmp/www

there() { ping -c1 -w1 10.0.0.1; }
is_done() { [ "$(timeout 3 wget -q -O - http://10.0.0.1:8080/done)" = "$1" ]; }

# Which of the guests with the host agent is meant.
host=first
count=0
# order WORD: has the other guest do it.
order() {
    count=$((count + 1))
    word=$1-$WHICH-$count-$host
    echo "$word" >/tmp/www/word.new
    mv /tmp/www/word.new /tmp/www/word
}

# ask SECONDS WORD: the same, and waits until it is done.
ask() {
    order "$2"
    wait_for "$1" "done: $2" is_done "$word"
}

# More regions fetched than before, soon.
goes_on() {
    before=$(nic fetched_regions_total)
    wait_for 20 "$1: regions are fetched" at_least $((${before:-0} + 50)) nic fetched_regions_total
}

missed() {
    say "missed: $(nic failed_regions_total) regions, $(nic failed_batches_total) batches, $(nic late_ticks_total) late ticks;" \
        "connections $(nic connected_queue_pairs_total), revoked $(nic revoked_regions_total), not taken $(nic foreign_messages_total);" \
        "lost: $(for why in unconnected unanswered broken silent device; do echo "$(nic "lost_batches_total{reason=\"$why\"}") $why"; done | tr '\n' ' ')"
}

# From `count_from_here` on, every tick was done or is counted as late, every region of every tick as fetched or failed. The agent's figures are
# half a second old.
count_from_here() {
    began=$(now)
    ticks=$(nic ticks_total) late=$(nic late_ticks_total) fetched=$(nic fetched_regions_total) failed=$(nic failed_regions_total)
}

regions_are_counted() {
    seconds=$(($(now) - began))
    ticks=$(($(nic ticks_total) - ticks)) late=$(($(nic late_ticks_total) - late))
    fetched=$(($(nic fetched_regions_total) - fetched)) failed=$(($(nic failed_regions_total) - failed))
    say "$1, in $seconds s: $ticks ticks and $late late ones, $fetched regions fetched and $failed not"
    [ $((fetched + failed)) -ge $(((ticks - 5) * 10)) ] || fail "regions are missing that nobody has counted"
}

# Only where the host agent did not shut the worker out meanwhile, which has nothing to do then.
ticks_are_counted() {
    regions_are_counted "$1"
    [ $((ticks + late)) -ge $(((seconds - 3) * 1000 / interval_ms)) ] || fail "ticks are missing that nobody has counted"
}

armed() { [ "$(nic 'lmaps{state="armed"}')" = 5 ]; }
attached() { [ "$(nic attached_regions)" = 10 ]; }
connected_again() { at_least $((connections + 1)) nic connected_queue_pairs_total && at_least 1 nic queue_pair_connected; }

# packets LOSS: of what this guest sends, so many per cent are dropped; the other one's answers arrive.
packets() { /sbin/tc qdisc replace dev eth0 root netem loss "$1%" || fail "packets cannot be dropped here"; }

wait_for 60 "the other guest is there" there
start_nic_agent 10.0.0.1
wait_for 60 "the queue pair is connected" at_least 1 nic connected_queue_pairs_total
wait_for 60 "all ten regions are attached" attached
goes_on "start"
if [ "$WHICH" = second ]; then
    missed
    ask 30 report
    connections=$(nic connected_queue_pairs_total) failed_batches=$(nic failed_batches_total)
    order reboot
    wait_for 30 "batches fail" at_least $((failed_batches + 5)) nic failed_batches_total
    host=second
    wait_for 90 "connected to the fresh host" connected_again
    wait_for 60 "all ten regions are attached" attached
    goes_on "after the reboot of the host's guest"
    missed
    ask 30 end
    exit 0
fi

wait_for 120 "all services are armed" armed
missed
ask 120 fault

connections=$(nic connected_queue_pairs_total)
ask 40 kill-host
wait_for 30 "connected again" connected_again
wait_for 30 "all ten regions are attached" attached
goes_on "after kill -9 of the host agent"
armed || fail "what was learnt is lost"
missed

say "a tenth of the packets is dropped, then all of them"
count_from_here
packets 10
goes_on "with a tenth of the packets dropped"
connections=$(nic connected_queue_pairs_total) failed_batches=$(nic failed_batches_total)
packets 100
# Shorter than the worker's lease.
sleep 3
at_least $((failed_batches + 5)) nic failed_batches_total || fail "the counters do not say what was missed"
/sbin/tc qdisc del dev eth0 root
wait_for 30 "connected again" connected_again
wait_for 30 "all ten regions are attached" attached
goes_on "after packets were dropped"
ticks_are_counted "packets dropped"
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

connections=$(nic connected_queue_pairs_total) failed_batches=$(nic failed_batches_total)
count_from_here
ip link set eth0 down
say "the wire is cut"
sleep 10
ip link set eth0 up
say "the wire is whole"
wait_for 30 "connected again" connected_again
wait_for 60 "all ten regions are attached" attached
goes_on "after 10 s without a wire"
at_least $((failed_batches + 10)) nic failed_batches_total || fail "the counters do not say what was missed"
regions_are_counted "the wire cut"
missed
wait_for 120 "all services are armed again" armed
goes_on "armed"
ask 30 report
grep -v INFO /tmp/nic.log | head -40
exit 0
