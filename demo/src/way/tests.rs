use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use super::*;
use crate::clock::Clock;

/// Answers whatever comes at an address of the other side.
fn answer(known: &space::Known) -> SocketAddr {
    let listener = listen_in(&known.space, (known.address, 0).into()).unwrap();
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

/// How long a byte there and back takes, at the least, of some.
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
async fn packets_pass_at_once_and_late_while_they_are_held_and_the_way_goes_with_its_relay() {
    if may_be().is_err() {
        println!("NOT RUN: network namespaces take root");
        return;
    }
    let (held, (ended, end)) = (Held::default(), oneshot::channel());
    let known = match start(1, Arc::clone(&held), ended).await {
        Ok(known) => known,
        Err(why @ (WayError::NoIp | WayError::System { .. } | WayError::Closed { .. })) => {
            println!("NOT RUN: {why}");
            return;
        }
        Err(why) => panic!("{why}"),
    };
    let interface = known.interface.clone();
    let mut stream = TcpStream::connect(answer(&known)).unwrap();
    stream.set_nodelay(true).unwrap();

    let at_once = there_and_back(&mut stream);
    held.store(40, Ordering::Relaxed);
    let late = there_and_back(&mut stream);
    held.store(0, Ordering::Relaxed);
    let again = there_and_back(&mut stream);

    assert!(at_once < Duration::from_millis(20) && again < Duration::from_millis(20), "{at_once:?}, {again:?}");
    assert!(late >= Duration::from_millis(60), "{late:?}");
    assert!(std::process::Command::new("ip").args(["link", "delete", &interface]).status().unwrap().success());
    let _ = end.await.expect("the relay says why it ends");
    assert!(!Path::new("/sys/class/net").join(interface).exists());
}

#[tokio::test]
async fn other_faults_are_refused() {
    let ask = |kind| inject(State(Held::default()), Query(Injection { kind, ms: 1, amount: 40 }));

    assert_eq!(ask(Kind::Latency).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask(Kind::SlowWay).await.0, StatusCode::ACCEPTED);
}

#[tokio::test(start_paused = true)]
async fn packets_are_held_for_as_long_as_was_asked_for() {
    let held = Held::default();
    let _ = inject(State(Arc::clone(&held)), Query(Injection { kind: Kind::SlowWay, ms: 500, amount: 40 })).await;

    assert_eq!(held.load(Ordering::Relaxed), 40);
    tokio::time::sleep(Duration::from_millis(501)).await;
    assert_eq!(held.load(Ordering::Relaxed), 0);
}
