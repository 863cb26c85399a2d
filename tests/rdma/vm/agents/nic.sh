# The guest with the NIC agent, which controls the test. WHICH is "first", or "second" after the guest was replaced by a
# fresh one.
. ./common.sh

mkdir -p /tmp/www
httpd -p 10.0.0.2:8080 -h /tmp/www

# Those of five services: what a service exposes itself, and its process as the host agent measures it. Of that, values
# that are read once a second have a region of their own.
regions=15

there() { ping -c1 -w1 10.0.0.1; }
is_done() { [ "$(timeout 3 wget -q -O - http://10.0.0.1:8080/done)" = "$1" ]; }

# The guest with the host agent that gets the orders.
host=first
count=0
# order WORD: orders the other guest to do WORD.
order() {
    count=$((count + 1))
    word=$1-$WHICH-$count-$host
    echo "$word" >/tmp/www/word.new
    mv /tmp/www/word.new /tmp/www/word
}

# ask SECONDS WORD: the same, and waits until it is done, at most for SECONDS.
ask() {
    order "$2"
    wait_for "$1" "done: $2" is_done "$word"
}

# Waits until more regions are fetched.
goes_on() {
    before=$(nic fetched_regions_total)
    wait_for 20 "$1: regions are fetched" at_least $((${before:-0} + 50)) nic fetched_regions_total
}

missed() {
    say "missed: $(nic failed_regions_total) regions, $(nic failed_batches_total) batches, $(nic late_ticks_total) late ticks;" \
        "connections $(nic connected_queue_pairs_total), revoked $(nic revoked_regions_total), not taken $(nic unexpected_messages_total);" \
        "lost: $(for why in unconnected unanswered broken silent device; do echo "$(nic "lost_batches_total{reason=\"$why\"}") $why"; done | tr '\n' ' ')"
}

# Since `count_from_here`, every tick was done or is counted as late, and every region of every tick is counted as
# fetched or failed. All figures are from one page, which is half a second old.
page() {
    page_at=$(now)
    wget -q -O /tmp/page http://127.0.0.1:9703/metrics || fail "the NIC agent does not respond"
    for name in ticks_total late_ticks_total fetched_regions_total failed_regions_total host_sessions_total; do
        value=$(sed -n "s/^uview_nic_$name //p" /tmp/page)
        eval "$1_$name=${value:-0}"
    done
}

count_from_here() {
    page from
    began=$page_at
}

# If the host agent has fenced the worker in between, its LMAPs came back one after the other: a region may be missing
# in so many ticks.
regions_are_counted() {
    page to
    seconds=$((page_at - began)) sessions=$((to_host_sessions_total - from_host_sessions_total))
    ticks=$((to_ticks_total - from_ticks_total)) late=$((to_late_ticks_total - from_late_ticks_total))
    fetched=$((to_fetched_regions_total - from_fetched_regions_total)) failed=$((to_failed_regions_total - from_failed_regions_total))
    say "$1, in $seconds s: $ticks ticks and $late late ones, $fetched regions fetched and $failed not, welcomed $sessions times"
    [ $((fetched + failed)) -ge $(((ticks - 5 - 25 * sessions) * regions)) ] || fail "regions are missing and not counted"
}

# If the host agent has fenced the worker in between, it is unknown for how many ticks the worker had no regions.
ticks_are_counted() {
    regions_are_counted "$1"
    if [ "$sessions" -gt 0 ]; then
        finding "the worker was fenced while packets were dropped for less than its lease: its ticks were not checked"
        return
    fi
    tries=0
    # On a busy machine the page may be older; a tick that is not counted would stay missing.
    until [ $((ticks + late)) -ge $(((seconds - 3) * 1000 / interval_ms)) ]; do
        tries=$((tries + 1))
        [ $tries -lt 10 ] || fail "ticks are missing and not counted"
        sleep 1
        regions_are_counted "$1"
    done
}

# missed_since COUNT: whether at least COUNT batches failed or ticks were late since note_missed.
note_missed() { failed_batches=$(nic failed_batches_total) late_ticks=$(nic late_ticks_total); }
missed_since() { [ $(($(nic failed_batches_total) - failed_batches + $(nic late_ticks_total) - late_ticks)) -ge "$1" ]; }

armed() { [ "$(nic 'lmaps{state="armed"}')" = 5 ]; }
attached() { [ "$(nic attached_regions)" = $regions ]; }
connected_again() { at_least $((connections + 1)) nic connected_queue_pairs_total && at_least 1 nic queue_pair_connected; }

# packets LOSS: drops LOSS per cent of the packets that this guest sends; the other guest's replies arrive.
packets() { /sbin/tc qdisc replace dev eth0 root netem loss "$1%" || fail "packets cannot be dropped here"; }

wait_for 60 "the other guest is there" there
start_nic_agent 10.0.0.1
wait_for 60 "the queue pair is connected" at_least 1 nic connected_queue_pairs_total
wait_for 60 "all $regions regions are attached" attached
goes_on "start"
if [ "$WHICH" = second ]; then
    missed
    ask 30 report
    connections=$(nic connected_queue_pairs_total)
    note_missed
    order reboot
    wait_for 30 "batches fail" missed_since 5
    host=second
    wait_for 90 "connected to the fresh host" connected_again
    wait_for 60 "all $regions regions are attached" attached
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
wait_for 30 "all $regions regions are attached" attached
goes_on "after kill -9 of the host agent"
# Learning from the start would take longer on any machine, since it takes a row per interval.
wait_for 1 "all services are still armed" armed
missed

say "a tenth of the packets is dropped, then all of them"
count_from_here
packets 10
goes_on "with a tenth of the packets dropped"
connections=$(nic connected_queue_pairs_total)
note_missed
packets 100
# Shorter than the worker's lease.
sleep 3
/sbin/tc qdisc del dev eth0 root
wait_for 10 "missed ticks are counted" missed_since 5
wait_for 30 "connected again" connected_again
wait_for 30 "all $regions regions are attached" attached
goes_on "after packets were dropped"
ticks_are_counted "packets dropped"
missed

kill -9 $nic_pid
sleep 1
start_nic_agent 10.0.0.1
wait_for 30 "connected again" at_least 1 nic connected_queue_pairs_total
wait_for 30 "all $regions regions are attached" attached
goes_on "after kill -9 of the NIC agent"
missed

ask 40 kill-service
wait_for 30 "all $regions regions are attached" attached
goes_on "after kill -9 of a service"
missed

connections=$(nic connected_queue_pairs_total)
note_missed
count_from_here
ip link set eth0 down
say "the link is down"
sleep 10
ip link set eth0 up
say "the link is up"
wait_for 30 "connected again" connected_again
wait_for 60 "all $regions regions are attached" attached
goes_on "after 10 s without a link"
missed_since 10 || fail "missed ticks are not counted"
regions_are_counted "the link down"
missed
wait_for 120 "all services are armed again" armed
goes_on "armed"
ask 30 report
grep -v INFO /tmp/nic.log | head -40
exit 0
