//! Connections while tokio's time is advanced by hand.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{advance, pause, resume, timeout};

/// What has to come at once comes within this time, on a busy machine too.
pub const AT_ONCE: Duration = Duration::from_secs(10);

/// Lets so much time pass. It goes on as the machine's afterwards: sockets between two ends would not keep up with
/// time that is paused.
pub async fn pass(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

/// Reads up to the end of a connection.
///
/// # Panics
///
/// It does not end at once.
pub async fn ended(stream: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = Vec::new();
    // A connection that is reset has ended, too.
    _ = timeout(AT_ONCE, stream.read_to_end(&mut bytes)).await.expect("the connection is closed");
}
