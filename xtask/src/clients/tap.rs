//! A wire between clients and uview that lets a witness overhear what clients say, byte for byte as they said it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Listens at one address. Connections end with this value.
#[derive(Debug)]
pub struct Tap(JoinHandle<()>);

impl Drop for Tap {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tap {
    /// Passes on what comes to `address` to `goal` and back, and to `witness`, whose answers nobody hears.
    ///
    /// # Errors
    ///
    /// The address is taken.
    pub async fn between(address: SocketAddr, goal: SocketAddr, witness: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("a tap at {address}"))?;
        Ok(Self(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                // Whichever side ends a connection, it is the client's to make again.
                connections.spawn(async move { _ = pass(client, goal, witness).await });
                while connections.try_join_next().is_some() {}
            }
        })))
    }

    /// Nobody listens there any more when this returns.
    pub async fn end(mut self) {
        self.0.abort();
        // That it was aborted is what was asked for.
        _ = (&mut self.0).await;
    }
}

async fn pass(mut client: TcpStream, goal: SocketAddr, witness: SocketAddr) -> Result<()> {
    let (mut goal, mut witness) = (TcpStream::connect(goal).await?, TcpStream::connect(witness).await?);
    client.set_nodelay(true)?;
    goal.set_nodelay(true)?;
    let (mut said, mut hears) = client.split();
    let (mut answers, mut on) = goal.split();
    let (mut ignored, mut overhears) = witness.split();
    let there = async {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let some = said.read(&mut bytes).await?;
            if some == 0 {
                // What it said last is still to be taken.
                overhears.shutdown().await?;
                return Ok::<_, anyhow::Error>(());
            }
            // The witness first: what uview answers is known to have been overheard.
            overhears.write_all(&bytes[..some]).await?;
            on.write_all(&bytes[..some]).await?;
        }
    };
    let mut nowhere = sink();
    let back = async { copy(&mut answers, &mut hears).await.map(|_| ()).map_err(anyhow::Error::from) };
    let unheard = async {
        copy(&mut ignored, &mut nowhere).await?;
        core::future::pending::<Result<()>>().await
    };
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
        ended = unheard => ended,
    }
}
