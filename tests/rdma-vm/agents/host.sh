# The guest with the host agent and the shop. Does what the other guest, 10.0.0.2, wants done, by a word that it serves over HTTP.
. ./common.sh

mkdir -p /tmp/www
httpd -p 10.0.0.1:8080 -h /tmp/www
start_host_agent
wait_for 20 "the host agent listens" wget -q -O - http://127.0.0.1:9702/readyz
start_shop

# field SERVICE NAME: of the service's LMAP, as the status has it.
field() { status | tr -d ' \n' | sed 's/{"lmap":/\n&/g' | sed -n "s/.*\"service\":\"$1\".*\"$2\":\([a-z0-9]*\).*/\1/p"; }
in_alarm() { [ "$(field "$1" alarm)" = true ]; }
no_alarm() { ! in_alarm "$1"; }

all_alarms() { for service in frontend cart catalogue payment store; do echo "$service $(field $service alarms)"; done; }

done_with() { echo "$1" >/tmp/www/done; }

last=
while true; do
    word=$(timeout 3 wget -q -O - http://10.0.0.2:8080/word 2>/dev/null)
    if [ -z "$word" ] || [ "$word" = "$last" ]; then
        sleep 0.3
        continue
    fi
    last=$word
    say "asked for: $word"
    case $word in
    fault*)
        say "alarms before: $(all_alarms | tr '\n' ' ')"
        wget -q -O - --post-data '' 'http://127.0.0.1:8104/fault?kind=errors&ms=15000&amount=800'
        wait_for 15 "the fault in payment is an alarm" in_alarm payment
        ./uview status --operators 127.0.0.1:9701
        wait_for 60 "the alarm of payment ends" no_alarm payment
        ;;
    kill-host*)
        kill -9 $host_pid
        sleep 1
        start_host_agent
        wait_for 20 "the host agent is back" wget -q -O - http://127.0.0.1:9702/readyz
        ;;
    kill-service*)
        kill -9 $payment_pid
        sleep 3
        start_service payment 8004 --next store=127.0.0.1:8001
        ;;
    report*)
        ./uview status --operators 127.0.0.1:9701
        say "alarms: $(all_alarms | tr '\n' ' ')"
        say "fenced $(host fenced_workers_total), queue pairs $(host requested_queue_pairs_total), stale verdicts $(host stale_verdicts_total)," \
            "unregistered regions $(host unregistered_regions_total)"
        ;;
    end*)
        grep -v INFO /tmp/host.log
        done_with "$word"
        sleep 3
        exit 0
        ;;
    esac
    done_with "$word"
done
