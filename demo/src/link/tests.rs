use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use support::harness::not_run;

use super::*;
use crate::clock::Clock;

/// An echo server at an address of the other side.
fn answer(endpoints: &namespace::LinkEndpoints) -> SocketAddr {
    let listener = listen_in(&endpoints.netns, (endpoints.address, 0).into()).unwrap();
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            stream.write_all(&byte).unwrap();
        }
    });
    address
}

/// The shortest round-trip time of a byte in 20 tries.
fn there_and_back(stream: &mut TcpStream) -> Duration {
    let took = |_| {
        let clock = Clock::start();
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        Duration::from(clock.now())
    };
    (0..20).map(took).min().unwrap()
}

#[tokio::test]
async fn packets_pass_at_once_or_delayed_and_the_link_ends_with_its_relay() {
    if check_privileges().is_err() {
        not_run("a link of the demo: network namespaces take root");
        return;
    }
    let (delay_ms, (ended, end)) = (PacketDelay::default(), oneshot::channel());
    let endpoints = match start(1, Arc::clone(&delay_ms), ended).await {
        Ok(endpoints) => endpoints,
        Err(why @ (LinkError::NoIp | LinkError::System { .. } | LinkError::Closed { .. })) => {
            not_run(&format!("a link of the demo: {why}"));
            return;
        }
        Err(why) => panic!("{why}"),
    };
    let interface = endpoints.interface.clone();
    let mut stream = TcpStream::connect(answer(&endpoints)).unwrap();
    stream.set_nodelay(true).unwrap();

    let at_once = there_and_back(&mut stream);
    delay_ms.store(40, Ordering::Relaxed);
    let late = there_and_back(&mut stream);
    delay_ms.store(0, Ordering::Relaxed);
    let again = there_and_back(&mut stream);

    assert!(at_once < Duration::from_millis(20) && again < Duration::from_millis(20), "{at_once:?}, {again:?}");
    assert!(late >= Duration::from_millis(60), "{late:?}");
    assert!(std::process::Command::new("ip").args(["link", "delete", &interface]).status().unwrap().success());
    let _ = end.await.expect("the relay says why it ends");
    assert!(!Path::new("/sys/class/net").join(interface).exists());
}

#[tokio::test]
async fn other_faults_are_refused() {
    let ask = |kind| inject(State(PacketDelay::default()), Query(Injection { kind, ms: 1, amount: 40 }));

    assert_eq!(ask(Kind::Latency).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask(Kind::SlowLink).await.0, StatusCode::ACCEPTED);
}

#[tokio::test(start_paused = true)]
async fn packets_are_delayed_for_the_requested_time() {
    let delay_ms = PacketDelay::default();
    let _ = inject(State(Arc::clone(&delay_ms)), Query(Injection { kind: Kind::SlowLink, ms: 500, amount: 40 })).await;

    assert_eq!(delay_ms.load(Ordering::Relaxed), 40);
    tokio::time::sleep(Duration::from_millis(501)).await;
    assert_eq!(delay_ms.load(Ordering::Relaxed), 0);
}
