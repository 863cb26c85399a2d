# The guest with the host agent and the shop. Does what the other guest, 10.0.0.2, wants done, by a word that it serves over HTTP.
# WHICH is "first", or "second" after the guest was replaced by a fresh one.
. ./common.sh

mkdir -p /tmp/www
httpd -p 10.0.0.1:8080 -h /tmp/www
# Services are there before the agent that watches them, and their memory has grown to what their work takes: it is recovery that is tried here, not what
# a detector makes of a service that starts.
start_shop
has_run() { [ "$(now)" -ge $((started + 25)) ]; }
started=$(now)
wait_for 40 "the shop has worked for a while" has_run
start_host_agent
wait_for 20 "the host agent listens" wget -q -O - http://127.0.0.1:9702/readyz
# Every alarm, and beside it what was done, for the judge.
./xtask part guest alarms --operators 127.0.0.1:9701 >>/tmp/alarms 2>&1 &
mark() { echo "$(cut -d' ' -f1 /proc/uptime) mark $*" >>/tmp/alarms; }

# field SERVICE NAME: of the service's LMAP, as the status has it.
field() { status | tr -d ' \n' | sed 's/{"lmap":/\n&/g' | sed -n "s/.*\"service\":\"$1\".*\"$2\":\([a-z0-9]*\).*/\1/p"; }
in_alarm() { [ "$(field "$1" alarm)" = true ]; }
no_alarm() { ! in_alarm "$1"; }
all_quiet() { for service in frontend cart catalogue payment store; do no_alarm $service || return 1; done; }

done_with() { echo "$1" >/tmp/www/done; }

judge() {
    grep -v '#' /tmp/alarms
    ./xtask part guest judge /tmp/alarms || fail "a verdict is wrong"
}

last=
while true; do
    word=$(timeout 3 wget -q -O - http://10.0.0.2:8080/word 2>/dev/null)
    # What was asked of a guest that is gone is not for this one.
    if [ -z "$word" ] || [ "$word" = "$last" ] || [ "${word%-"$WHICH"}" = "$word" ]; then
        sleep 0.3
        continue
    fi
    last=$word
    say "asked for: $word"
    case $word in
    fault*)
        mark fault payment
        wget -q -O - --post-data '' 'http://127.0.0.1:8104/fault?kind=errors&ms=15000&amount=800'
        wait_for 15 "the fault in payment is an alarm" in_alarm payment
        ./uview status --operators 127.0.0.1:9701
        sleep 15
        mark over
        wait_for 60 "all alarms end" all_quiet
        ;;
    kill-host*)
        kill -9 $host_pid
        sleep 1
        start_host_agent
        wait_for 20 "the host agent is back" wget -q -O - http://127.0.0.1:9702/readyz
        ;;
    kill-service*)
        # Whoever calls it has errors to show.
        mark fault -
        kill -9 $payment_pid
        sleep 3
        start_service payment 8004 --next store=127.0.0.1:8001
        sleep 2
        mark over
        ;;
    report*)
        ./uview status --operators 127.0.0.1:9701
        say "fenced $(host fenced_workers_total), queue pairs $(host requested_queue_pairs_total), stale verdicts $(host stale_verdicts_total)," \
            "unregistered regions $(host unregistered_regions_total)"
        judge
        ;;
    reboot*)
        judge
        grep -v INFO /tmp/host.log
        # Without a word to anybody: process 1 ends the machine at once.
        say "the guest ends"
        exit 0
        ;;
    end*)
        judge
        grep -v INFO /tmp/host.log
        done_with "$word"
        sleep 3
        exit 0
        ;;
    esac
    done_with "$word"
done
