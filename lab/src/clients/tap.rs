//! A proxy between clients and uview that copies everything that clients send to a witness, byte by byte.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A proxy at one address. Dropping it closes its connections.
#[derive(Debug)]
pub struct Tap(JoinHandle<()>);

impl Drop for Tap {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tap {
    /// Relays between clients of `address` and `goal`, and copies the clients' bytes to `witness`. Responses of the
    /// witness are dropped.
    ///
    /// # Errors
    ///
    /// The address is in use.
    pub async fn between(address: SocketAddr, goal: SocketAddr, witness: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("a tap at {address}"))?;
        Ok(Self(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                // The client reconnects, whichever side closes a connection.
                connections.spawn(async move { _ = pass(client, goal, witness).await });
                while connections.try_join_next().is_some() {}
            }
        })))
    }

    /// Ends the proxy. The address is free when this returns.
    pub async fn end(mut self) {
        self.0.abort();
        // The error only says that it was aborted.
        _ = (&mut self.0).await;
    }
}

async fn pass(mut client: TcpStream, goal: SocketAddr, witness: SocketAddr) -> Result<()> {
    let (mut goal, mut witness) = (TcpStream::connect(goal).await?, TcpStream::connect(witness).await?);
    client.set_nodelay(true)?;
    goal.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_goal, mut to_goal) = goal.split();
    let (mut from_witness, mut to_witness) = witness.split();
    let there = async {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let some = from_client.read(&mut bytes).await?;
            if some == 0 {
                // The witness still has to read the last bytes.
                to_witness.shutdown().await?;
                return Ok::<_, anyhow::Error>(());
            }
            // The witness first, so that it has everything to which uview responds.
            to_witness.write_all(&bytes[..some]).await?;
            to_goal.write_all(&bytes[..some]).await?;
        }
    };
    let mut nowhere = sink();
    let back = async { copy(&mut from_goal, &mut to_client).await.map(|_| ()).map_err(anyhow::Error::from) };
    let drained = async {
        copy(&mut from_witness, &mut nowhere).await?;
        core::future::pending::<Result<()>>().await
    };
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
        ended = drained => ended,
    }
}
