# Fridges and two NIC agents on an emulated path: netem delays and loses packets between two namespaces.
#
#   here  10.9.1.1 --- 10.9.1.2  between  10.9.2.2 --- 10.9.2.1  there
#                                         netem
#
# The agents talk to each other past it, over 10.9.3.1 --- 10.9.3.2. The queue is in a namespace of its own, since a
# capture of sent packets comes after the interface's own queue.
. ./common.sh

delay_ms=20
jitter_ms=5
loss_percent=1
# Duration of the traffic, and of the fridge's capture.
traffic_s=45
fridge_s=20

for program in ip tc; do
    [ -x /sbin/$program ] || {
        say "NOT RUN: this guest has no $program"
        exit 0
    }
done
in_() { space=$1; shift; /sbin/ip netns exec "$space" "$@"; }

mkdir -p /run /var
# A guest without these features is no failure. Guests of build-vm have them.
/sbin/ip netns add here && /sbin/ip netns add between && /sbin/ip netns add there || {
    say "NOT RUN: this kernel has no network namespaces"
    exit 0
}
# pair SPACE INTERFACE ADDRESS SPACE INTERFACE ADDRESS
pair() {
    /sbin/ip -n "$1" link add "$2" type veth peer name "$5" netns "$4" || return 1
    /sbin/ip -n "$1" link set "$2" addrgenmode none up && /sbin/ip -n "$1" address add "$3/24" dev "$2"
    /sbin/ip -n "$4" link set "$5" addrgenmode none up && /sbin/ip -n "$4" address add "$6/24" dev "$5"
}
pair here here0 10.9.1.1 between left0 10.9.1.2 || {
    say "NOT RUN: this kernel has no veth"
    exit 0
}
pair there there0 10.9.2.1 between right0 10.9.2.2
pair here here1 10.9.3.1 there there1 10.9.3.2
in_ between sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
/sbin/ip -n here route add 10.9.2.0/24 via 10.9.1.2
/sbin/ip -n there route add 10.9.1.0/24 via 10.9.2.2
in_ between /sbin/tc qdisc add dev right0 root netem limit 100000 delay ${delay_ms}ms ${jitter_ms}ms loss $loss_percent% || {
    say "NOT RUN: this kernel has no netem"
    exit 0
}
say "$(in_ between /sbin/tc qdisc show dev right0)"

# agent SPACE: starts a NIC agent that captures the datagrams in that namespace.
agent() {
    cat >"/tmp/$1.yaml" <<END
transport: shm
metrics: {listen: '127.0.0.1:9703'}
log: {format: json, level: 'info,nic_agent=debug'}
network:
  services_socket: /tmp/$1.sock
$2
END
    in_ "$1" ./uview nic-agent --config "/tmp/$1.yaml" 2>"/tmp/$1.log" &
}
for space in here there; do /sbin/ip -n $space link set lo up; done
stream="name: way, filter: udp and dst port 6000"
agent there "  peers: {listen: '0.0.0.0:9705', insecure: true}
  streams: [{$stream, interface: there0, one_way: {synopsis: rda}}]"
agent here "  peers: {peers_insecure: true}
  streams: [{$stream, interface: here0, one_way: {synopsis: rda, peer: '10.9.3.2:9705'}}]"

in_ there ./lab part guest path-sink &
in_ here ./lab part guest path-send --to 10.9.2.1 --seconds $traffic_s --per-second 2000 >/tmp/traffic &
sending=$!
in_ here ./uview synopsis fridge --interface here0 --pair handshake --for $fridge_s --json >/tmp/fridge.json 2>/tmp/fridge.log || say "the fridge: $(cat /tmp/fridge.log)"
compared() { grep -c 'an interval was compared' "/tmp/$1.log"; }
for space in here there; do wait_for 60 "intervals compared $space" at_least 8 compared $space; done
wait $sending
cat /tmp/traffic
say "$(in_ between /sbin/tc -s qdisc show dev right0 | tr '\n' ' ')"
./lab part guest judge-path --delay-ms $delay_ms --jitter-ms $jitter_ms --loss 0.0$loss_percent --fridge /tmp/fridge.json \
    --logs /tmp/here.log --logs /tmp/there.log || fail "the measurements differ from the path"
exit 0
