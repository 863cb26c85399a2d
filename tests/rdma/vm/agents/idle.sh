# Measures processes while they are read by RDMA, while they are not, and while they are scraped over HTTP.
# `cargo lab rdma` evaluates the figures.
interval_ms=4
heartbeat_ms=1000
process_metrics=false
. ./common.sh

scrapes=10000
services='1 2 3'

start_host_agent
wait_for 20 "the host agent listens" wget -q -O - http://127.0.0.1:9702/healthz
watched="host-agent=$host_pid"
for n in $services; do
    ./lab part service --name "idle-$n" --socket $run/services.sock >>"/tmp/service-$n.log" 2>&1 &
    watched="$watched service-$n=$!"
done
start_nic_agent 10.0.0.1
wait_for 30 "the queue pair is connected" at_least 1 nic connected_queue_pairs_total
armed() { [ "$(nic 'lmaps{state="armed"}')" = 3 ]; }
wait_for 60 "all LMAPs are armed" armed
# Fits at 600 and 2,000 rows.
wait_for 60 "the last fit is over" at_least 2500 nic ticks_total
say "read $scrapes times"
./lab part guest usage --phase scraped --ticks $scrapes --nic 127.0.0.1:9703 $watched >/tmp/scraped || fail "not measured"
cat /tmp/scraped
armed || fail "an LMAP is not armed any more: services were not read"
say "late ticks: $(nic late_ticks_total), failed batches: $(nic failed_batches_total), connections: $(nic connected_queue_pairs_total)"

kill $nic_pid
wait $nic_pid
# It leaves in good order, and the host agent fences it from RDMA at once.
wait_for 30 "the worker is gone" at_least 1 host left_workers_total
seconds=$(sed -n 's/.*"seconds":\([0-9.]*\).*/\1/p' /tmp/scraped)
say "not read for $seconds s"
./lab part guest usage --phase alone --seconds "$seconds" $watched || fail "not measured"

./lab part exporters --services 1 >/tmp/endpoint 2>&1 &
endpoint=$!
wait_for 10 "the endpoint" grep -q '"' /tmp/endpoint
address=$(sed -n 's/.*"\(.*\)".*/\1/p' /tmp/endpoint)
say "scraped $scrapes times"
./lab part scraper --interval-ms $interval_ms --seconds 450 --rounds $scrapes "$address" >/tmp/scraper 2>&1 &
scraper=$!
./lab part guest usage --phase prometheus --process $scraper "endpoint=$endpoint" || fail "not measured"
wait $scraper || fail "the scraper: $(cat /tmp/scraper)"
say "the scraper: $(tail -n 1 /tmp/scraper)"
grep -q "\"done\":$scrapes," /tmp/scraper || fail "the endpoint was scraped less often"
exit 0
