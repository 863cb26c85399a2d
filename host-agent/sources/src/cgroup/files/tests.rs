//! Texts as the kernel's documentation describes them; those of version 1 were read from Linux 6.18.

use proptest::prelude::*;

use super::*;

const CPU_V2: &[u8] = b"usage_usec 300\nuser_usec 200\nsystem_usec 100\nnice_usec 7\ncore_sched.force_idle_usec 0\n\
    nr_periods 40\nnr_throttled 12\nthrottled_usec 5000\nnr_bursts 1\nburst_usec 9\n";
const PRESSURE: &[u8] =
    b"some avg10=0.12 avg60=1.00 avg300=0.00 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=56\n";
const MEMORY_V2: &[u8] =
    b"anon 1000\nfile 2000\nkernel 300\nkernel_stack 30\npagetables 31\nsec_pagetables 0\npercpu 1\n\
    sock 32\nvmalloc 0\nshmem 33\nzswap 0\nzswapped 0\nfile_mapped 34\nfile_dirty 35\nfile_writeback 36\nswapcached 0\n\
    anon_thp 37\nfile_thp 0\nshmem_thp 0\ninactive_anon 38\nactive_anon 39\ninactive_file 40\nactive_file 41\n\
    unevictable 42\nslab_reclaimable 43\nslab_unreclaimable 44\nslab 87\nworkingset_refault_anon 45\n\
    workingset_refault_file 46\nworkingset_activate_anon 47\nworkingset_activate_file 48\nworkingset_restore_anon 0\n\
    workingset_restore_file 0\nworkingset_nodereclaim 0\npgscan 49\npgsteal 50\npgscan_kswapd 0\npgscan_direct 51\n\
    pgsteal_kswapd 0\npgsteal_direct 0\npgfault 60\npgmajfault 8\npgrefill 52\npgactivate 0\npgdeactivate 0\n\
    pglazyfree 0\npglazyfreed 0\nthp_fault_alloc 0\nthp_collapse_alloc 0\n";
const EVENTS: &[u8] = b"low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 0\n";
const IO_V2: &[u8] = b"8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n\
    8:0 rbytes=90430464 wbytes=299008000 rios=8950 wios=1252 dbytes=50331648 dios=3021 cost.usage=17\n254:0 \n";
const MEMORY_V1: &[u8] = b"cache 1\nrss 2\nrss_huge 0\nshmem 9\npgfault 3\npgmajfault 1\ninactive_file 5\n\
    hierarchical_memory_limit 9223372036854771712\ntotal_cache 5352001536\ntotal_rss 187760640\ntotal_rss_huge 0\n\
    total_shmem 9084928\ntotal_mapped_file 109047808\ntotal_dirty 188436480\ntotal_writeback 0\n\
    total_workingset_refault_anon 0\ntotal_workingset_refault_file 93678\ntotal_swap 0\ntotal_pgpgin 23168278\n\
    total_pgpgout 22210377\ntotal_pgfault 26215703\ntotal_pgmajfault 1554\ntotal_inactive_file 3561975808\n";
const OOM_V1: &[u8] = b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
const BLKIO_V1: &[u8] = b"8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 0\n8:0 Async 0\n8:0 Discard 1\n8:0 Total 12288\n\
    8:16 Read 1\n8:16 Write 2\nTotal 12291\n";
const DEV: &[u8] = b"Inter-|   Receive                                                |  Transmit\n \
    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0\n  \
    eth0: 78302124    3586    1    2    0     0          0         0   214441    1935    3    4    0     0       0          0\n  \
    eth1:1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n";
const SNMP: &[u8] = b"Tcp: RtoAlgorithm MaxConn EstabResets RetransSegs\nTcp: 1 -1 7 12\n";
const NETSTAT: &[u8] = b"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 3 4\n";

fn one(controller: Controller, name: &str, text: &[u8], values: &mut Values) -> Option<()> {
    let file = FILES.iter().find(|file| file.controller == controller && file.name == name).unwrap();
    file.read(text, values)
}

fn read(texts: &[(Controller, &str, &[u8])]) -> Values {
    let mut values = Values::default();
    // In the order of the table, as they are read.
    for file in FILES {
        let of = texts.iter().find(|(controller, name, _)| file.controller == *controller && file.name == *name);
        if let Some((_, name, text)) = of {
            assert_eq!(file.read(text, &mut values), Some(()), "{name}");
        }
    }
    values
}

fn check(values: &Values, expected: &[(Measure, u64)]) {
    for (measure, value) in expected {
        assert_eq!(values.get(*measure), Some(*value), "{measure:?}");
    }
    let others: Vec<_> = values.iter().filter(|(measure, _)| expected.iter().all(|(of, _)| of != measure)).collect();
    assert_eq!(others, [], "not expected");
}

#[test]
fn version_2_is_read_in_nanoseconds_and_bytes() {
    use Controller::Unified;
    let values = read(&[
        (Unified, "cpu.stat", CPU_V2),
        (Unified, "cpu.pressure", PRESSURE),
        (Unified, "memory.current", b"3333\n"),
        (Unified, "memory.swap.current", b"77\n"),
        (Unified, "memory.stat", MEMORY_V2),
        (Unified, "memory.events", EVENTS),
        (Unified, "io.stat", IO_V2),
        (Unified, "pids.current", b"9\n"),
        (Unified, "pids.events", b"max 2\n"),
    ]);

    let expected = [
        (Measure::CpuUser, 200_000),
        (Measure::CpuSystem, 100_000),
        (Measure::Periods, 40),
        (Measure::ThrottledPeriods, 12),
        (Measure::ThrottledTime, 5_000_000),
        (Measure::Bursts, 1),
        (Measure::BurstTime, 9_000),
        (Measure::CpuSome, 1_234_000),
        (Measure::CpuFull, 56_000),
        (Measure::MemoryUsage, 3333),
        (Measure::WorkingSet, 3293),
        (Measure::Swap, 77),
        (Measure::Anon, 1000),
        (Measure::File, 2000),
        (Measure::KernelStack, 30),
        (Measure::PageTables, 31),
        (Measure::Sock, 32),
        (Measure::Shmem, 33),
        (Measure::FileMapped, 34),
        (Measure::FileDirty, 35),
        (Measure::FileWriteback, 36),
        (Measure::AnonHuge, 37),
        (Measure::InactiveAnon, 38),
        (Measure::ActiveAnon, 39),
        (Measure::InactiveFile, 40),
        (Measure::ActiveFile, 41),
        (Measure::Unevictable, 42),
        (Measure::SlabReclaimable, 43),
        (Measure::SlabUnreclaimable, 44),
        (Measure::RefaultsAnon, 45),
        (Measure::RefaultsFile, 46),
        (Measure::ActivationsAnon, 47),
        (Measure::ActivationsFile, 48),
        (Measure::PagesScanned, 49),
        (Measure::PagesReclaimed, 50),
        (Measure::PagesScannedDirectly, 51),
        (Measure::PagesRefilled, 52),
        (Measure::FaultsMinor, 52),
        (Measure::FaultsMajor, 8),
        (Measure::EventsLow, 1),
        (Measure::EventsHigh, 2),
        (Measure::EventsMax, 3),
        (Measure::EventsOom, 4),
        (Measure::OomKills, 5),
        (Measure::BytesRead, 91_889_664),
        (Measure::BytesWritten, 613_781_504),
        (Measure::Reads, 9142),
        (Measure::Writes, 1605),
        (Measure::BytesDiscarded, 50_331_648),
        (Measure::Discards, 3021),
        (Measure::Pids, 9),
        (Measure::EventsPids, 2),
    ];
    check(&values, &expected);
}

#[test]
fn version_1_is_read_with_its_children_and_version_2_beside_it_counts() {
    let values = read(&[
        (Controller::Cpuacct, "cpuacct.usage_user", b"5000\n"),
        (Controller::Cpuacct, "cpuacct.usage_sys", b"6000\n"),
        (Controller::Cpu, "cpu.stat", b"nr_periods 4\nnr_throttled 3\nthrottled_time 123\nnr_bursts 0\nburst_time 0\n"),
        (Controller::Memory, "memory.usage_in_bytes", b"4000000000\n"),
        (Controller::Memory, "memory.stat", MEMORY_V1),
        (Controller::Memory, "memory.failcnt", b"6\n"),
        (Controller::Memory, "memory.oom_control", OOM_V1),
        (Controller::Blkio, "blkio.throttle.io_service_bytes_recursive", BLKIO_V1),
        (Controller::Blkio, "blkio.throttle.io_serviced_recursive", b"Total 0\n"),
        (Controller::Pids, "pids.current", b"1\n"),
        (Controller::Unified, "cpu.stat", b"usage_usec 12\nuser_usec 7\nsystem_usec 5\n"),
    ]);

    let expected = [
        (Measure::CpuUser, 7_000),
        (Measure::CpuSystem, 5_000),
        (Measure::Periods, 4),
        (Measure::ThrottledPeriods, 3),
        (Measure::ThrottledTime, 123),
        (Measure::Bursts, 0),
        (Measure::BurstTime, 0),
        (Measure::MemoryUsage, 4_000_000_000),
        (Measure::WorkingSet, 438_024_192),
        (Measure::File, 5_352_001_536),
        (Measure::Anon, 187_760_640),
        (Measure::AnonHuge, 0),
        (Measure::Shmem, 9_084_928),
        (Measure::FileMapped, 109_047_808),
        (Measure::FileDirty, 188_436_480),
        (Measure::FileWriteback, 0),
        (Measure::RefaultsAnon, 0),
        (Measure::RefaultsFile, 93_678),
        (Measure::Swap, 0),
        (Measure::PagesCharged, 23_168_278),
        (Measure::PagesUncharged, 22_210_377),
        (Measure::FaultsMinor, 26_214_149),
        (Measure::FaultsMajor, 1554),
        (Measure::InactiveFile, 3_561_975_808),
        (Measure::EventsMax, 6),
        (Measure::OomKills, 3),
        (Measure::BytesRead, 4097),
        (Measure::BytesWritten, 8194),
        (Measure::BytesDiscarded, 1),
        (Measure::Reads, 0),
        (Measure::Writes, 0),
        (Measure::Discards, 0),
        (Measure::Pids, 1),
    ];
    check(&values, &expected);
}

#[test]
fn interfaces_are_summed_without_loopback_and_tcp_counters_are_those_of_the_namespace() {
    let mut values = Values::default();

    interfaces(DEV, &mut values).unwrap();
    tcp(SNMP, &mut values);
    tcp_extensions(NETSTAT, &mut values);

    let expected = [
        (Measure::NetworkReceived, 78_302_125),
        (Measure::PacketsReceived, 3588),
        (Measure::ErrorsReceived, 4),
        (Measure::DropsReceived, 6),
        (Measure::NetworkTransmitted, 214_446),
        (Measure::PacketsTransmitted, 1941),
        (Measure::ErrorsTransmitted, 10),
        (Measure::DropsTransmitted, 12),
        (Measure::Retransmitted, 12),
        (Measure::Resets, 7),
        (Measure::ListenDrops, 4),
    ];
    check(&values, &expected);
}

#[test]
fn nothing_written_yet_is_zero_and_a_text_that_is_none_has_no_value() {
    use Controller::Unified;
    let mut values = Values::default();

    assert_eq!(one(Unified, "io.stat", b"", &mut values), Some(()));
    assert_eq!(values.get(Measure::BytesRead), Some(0));
    assert_eq!(one(Unified, "memory.current", b"max\n", &mut values), None);
    assert_eq!(one(Unified, "cpu.stat", b"user_usec -5\n", &mut values), None);
    assert_eq!(one(Unified, "cpu.pressure", b"some avg10=0.00\n", &mut values), None);
    assert_eq!(interfaces(b"eth0: 1 2 3\n", &mut values), None);
}

#[test]
fn minor_faults_never_wrap_and_levels_of_the_largest_number_are_kept() {
    let mut values = Values::default();
    one(Controller::Unified, "memory.current", b"1\n", &mut values).unwrap();
    let text = b"inactive_file 18446744073709551615\npgfault 1\npgmajfault 2\n";

    one(Controller::Unified, "memory.stat", text, &mut values).unwrap();

    assert_eq!((values.get(Measure::FaultsMinor), values.get(Measure::WorkingSet)), (Some(0), Some(0)));
    assert_eq!(values.get(Measure::InactiveFile), Some(u64::MAX));
}

proptest! {
    #[test]
    fn any_bytes_are_values_or_nothing(text: Vec<u8>) {
        let mut values = Values::default();
        for file in FILES {
            let _ = file.read(&text, &mut values);
        }
        let _ = interfaces(&text, &mut values);
        tcp(&text, &mut values);
        tcp_extensions(&text, &mut values);
        let _ = crate::cgroup::hierarchies::hierarchies(&text);
    }
}
