# The guest with the host agent and the shop. Carries out the orders of the other guest, 10.0.0.2, which it reads over
# HTTP. WHICH is "first", or "second" after the guest was replaced by a fresh one. All regions are fetched at each tick:
# that is what is counted.
adaptive=false
. ./common.sh

mkdir -p /tmp/www
httpd -p 10.0.0.1:8080 -h /tmp/www
# Services run before the agent starts, until their memory no longer grows: this tests recovery, not how a detector
# handles a starting service.
start_shop
has_run() { [ "$(now)" -ge $((started + 25)) ]; }
started=$(now)
wait_for 40 "the shop has worked for a while" has_run
start_host_agent
wait_for 20 "the host agent listens" wget -q -O - http://127.0.0.1:9702/healthz
# Every alarm, with marks of the injected faults, for the evaluation.
./lab part guest alarms --operators unix:$run/operators.sock >>/tmp/alarms 2>&1 &
mark() { echo "$(cut -d' ' -f1 /proc/uptime) mark $*" >>/tmp/alarms; }

# field SERVICE NAME: a field of the service's LMAP in the status.
field() { status | tr -d ' \n' | sed 's/{"lmap":/\n&/g' | sed -n "s/.*\"service\":\"$1\".*\"$2\":\([a-z0-9]*\).*/\1/p"; }
no_alarm() { [ "$(field "$1" alarm)" = false ]; }
# named SERVICE: whether the service had an alarm with errors among its reasons since the last mark.
named() { sed -n 'H; / mark /h; ${x; p}' /tmp/alarms | grep -E " (began|on) $1 [0-9]+ " | grep -q -e 'http\.server\.errors' -e 'status="5xx"'; }
all_quiet() { for service in frontend cart catalogue payment store; do no_alarm $service || return 1; done; }

# Longer than a guest runs.
forever_ms=3600000
# fault MS AMOUNT: AMOUNT of a thousand requests fail in payment for MS milliseconds.
fault() { wget -q -O - --post-data '' "http://127.0.0.1:8104/fault?kind=errors&ms=$1&amount=$2"; }

done_with() { echo "$1" >/tmp/www/done; }

judge() {
    grep -v -e '#' -e ' on ' /tmp/alarms
    ./lab part guest judge /tmp/alarms || fail "a verdict is wrong"
}

last=
while true; do
    word=$(timeout 3 wget -q -O - http://10.0.0.2:8080/word 2>/dev/null)
    # Ignores orders for the guest before this one.
    if [ -z "$word" ] || [ "$word" = "$last" ] || [ "${word%-"$WHICH"}" = "$word" ]; then
        sleep 0.3
        continue
    fi
    last=$word
    say "order: $word"
    case $word in
    fault*)
        mark fault payment http.server.errors 'status="5xx"'
        # It lasts until it is noticed, however slow the guest is.
        fault "$forever_ms" 800
        wait_for 15 "the fault in payment is an alarm, for its errors" named payment
        # Time for alarms of other services.
        sleep 5
        ./uview status --operators unix:$run/operators.sock
        fault 1 0
        mark over
        wait_for 60 "the alarm of payment ends" no_alarm payment
        all_quiet || sleep 15
        all_quiet || finding "an alarm lasts for longer than 15 s after the fault is over"
        ;;
    kill-host*)
        kill -9 $host_pid
        sleep 1
        start_host_agent
        wait_for 20 "the host agent is back" wget -q -O - http://127.0.0.1:9702/healthz
        ;;
    kill-service*)
        # Callers of payment get errors.
        mark fault -
        kill -9 $payment_pid
        sleep 3
        start_service payment 8004 --next store=127.0.0.1:8001
        sleep 2
        mark over
        ;;
    report*)
        ./uview status --operators unix:$run/operators.sock
        say "fenced $(host fenced_workers_total), queue pairs $(host requested_queue_pairs_total), stale verdicts $(host stale_verdicts_total)," \
            "unregistered regions $(host unregistered_regions_total)"
        judge
        ;;
    reboot*)
        judge
        grep -v INFO /tmp/host.log
        # Without notice: process 1 ends the machine at once.
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
