//! What an agent leaves behind when it has ended.

use core::iter::from_fn;
use std::sync::mpsc::channel;
use std::time::Duration;

use nic_agent::config::Config;
use tokio::runtime::Builder;
use tokio::sync::mpsc::unbounded_channel;

use crate::LIMIT;

/// A process waits for threads that may block, as long as it is willing to, and drops tasks only then. So a thread that
/// ends with a task has to be gone by itself. Otherwise it never is, here: the runtime stays, and runs no task.
#[test]
fn threads_that_may_block_end_with_the_agent_and_not_with_the_tasks_of_its_runtime() {
    let ((starts, mut started), (ends, ended)) = (unbounded_channel(), channel());
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_millis(1))
        .on_thread_start(move || _ = starts.send(()))
        .on_thread_stop(move || _ = ends.send(()))
        .build()
        .unwrap();
    let mut config = Config::default();
    config.control.address = "127.0.0.1:1".to_owned();
    config.control.insecure = true;
    config.metrics.listen = "127.0.0.1:0".parse().unwrap();

    // It is told to end once it looks at its files.
    let agent = nic_agent::run(config, async { _ = started.recv().await });
    runtime.block_on(async { tokio::time::timeout(LIMIT, agent).await }).expect("it ends").unwrap();

    let threads = 1 + from_fn(|| started.try_recv().ok()).count();
    for _ in 0..threads {
        ended.recv_timeout(LIMIT).expect("a thread that may block ends");
    }
}
