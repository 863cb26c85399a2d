//! `kubectl uview open`: the live page of the node's agent, through a tunnel of kubectl.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Result, ensure};

use super::kit::Cluster;
use super::steps::Steps;

/// `$1`: the folder of the plugin. Opens the page with its token, and reads what it is sent for three seconds.
const LOOK: &str = r#"set -e; PATH=$1:$PATH
kubectl uview open --print >$1/address 2>$1/errors & tunnel=$!; trap 'kill $tunnel' EXIT
for _ in $(seq 300); do url=$(grep http:// $1/address) && break; kill -0 $tunnel || { cat $1/errors; exit 1; }; sleep 0.2; done
host=${url#http://}; host=${host%%/*}; path=/${url#http://*/}
ask() { exec 3<>/dev/tcp/${host/:/\/}; printf 'GET %s HTTP/1.1\r\nhost: %s\r\ncookie: %s\r\nconnection: close\r\n\r\n' "$1" $host "$2" >&3; }
ask $path; cookie=$(tr -d '\r' <&3 | sed -n 's/^[Ss]et-[Cc]ookie: \([^;]*\);.*/\1/p')
ask /api/events "$cookie"; timeout 3 cat <&3 || [ $? = 124 ]
ask /api/events wrong=1; head -1 <&3"#;

/// The page is opened by the plugin, shows the node's services, and nothing without a session.
///
/// # Errors
///
/// There is no tunnel, or the page shows something else.
pub fn check(cluster: &Cluster, uview: &Path, steps: &mut Steps) -> Result<()> {
    steps.run("kubectl uview open: the live page, through a tunnel", || {
        let folder = tempfile::tempdir()?;
        symlink(uview.canonicalize()?, folder.path().join("kubectl-uview"))?;
        let seen = cluster.sh(&format!("set -- {}; {LOOK}", folder.path().display()))?;
        ensure!(seen.contains("event: snapshot") && seen.contains("shop/store"), "the page shows {seen}");
        ensure!(seen.trim_end().ends_with("401 Unauthorized"), "without a session: {seen}");
        println!("{} bytes of the page through the tunnel", seen.len());
        Ok(())
    })
}
