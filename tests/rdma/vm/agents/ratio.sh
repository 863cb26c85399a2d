# Measures pairs of times, ours and a peer's in turns: READs of a page, one at a time against ib_read_lat, or 64 linked
# ones against a minimal loop. Prints medians in nanoseconds per batch as lines of PAIR OURS PEER. The caller sets PAIRS
# and WHAT (one or linked).
. ./common.sh

ours() { ./lab part guest reads --regions "$1" --batches "$2"; }

# Median latency of one READ by perftest, which prints microseconds.
ib_read_lat_median() {
    ib_read_lat -d rxe0 -x 1 -s 4096 -n "$1" -F >/tmp/server.log 2>&1 &
    server=$!
    until ib_read_lat -d rxe0 -x 1 -s 4096 -n "$1" -F 10.0.0.1 >/tmp/client.log 2>&1; do
        # The server does not listen yet; the guest has a time limit.
        kill -0 $server 2>/dev/null || fail "ib_read_lat: $(cat /tmp/server.log)"
        sleep 0.1
    done
    wait $server
    # It reads the processor's counter, which an emulator may set back: repeats the measurement then.
    median=$(awk '$1 == 4096 { printf "%d", $5 * 1000 }' /tmp/client.log)
    if [ "${median:-0}" -gt 0 ]; then echo "$median"; else ib_read_lat_median "$1"; fi
}

pair=0
while [ $pair -lt "$PAIRS" ]; do
    pair=$((pair + 1))
    for side in $([ $((pair % 2)) = 0 ] && echo ours peer || echo peer ours); do
        case $WHAT-$side in
        one-ours) ours=$(ours 1 500) ;;
        one-peer) peer=$(ib_read_lat_median 500) ;;
        linked-ours) ours=$(ours 64 100) ;;
        linked-peer) peer=$(./read-loop 64 100) ;;
        esac
    done
    if [ -z "$ours" ] || [ -z "$peer" ]; then
        fail "pair $pair was not measured: ours $ours, peer $peer; $(cat /tmp/client.log)"
    fi
    echo "PAIR $ours $peer"
done
exit 0
