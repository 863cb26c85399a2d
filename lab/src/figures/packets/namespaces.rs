//! Two network namespaces connected by a veth pair.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;

use anyhow::{Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The namespaces with the interfaces `here0` and `there0`. Dropping this deletes them.
pub struct Namespaces(u32);

impl Namespaces {
    pub const HERE: &str = "here";
    pub const THERE: &str = "there";

    /// Creates both, each with a loopback interface.
    ///
    /// # Errors
    ///
    /// `ip` fails.
    pub fn create() -> Result<Self> {
        let spaces = Self(std::process::id());
        let (here, there) = (spaces.name(Self::HERE), spaces.name(Self::THERE));
        for name in [&here, &there] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        ip(&["-n", &here, "link", "add", "here0", "type", "veth", "peer", "name", "there0", "netns", &there])?;
        // Without addresses the kernel sends no packets of its own.
        ip(&["-n", &here, "link", "set", "here0", "addrgenmode", "none", "up"])?;
        ip(&["-n", &there, "link", "set", "there0", "addrgenmode", "none", "up"])?;
        Ok(spaces)
    }

    /// The name of a namespace for `ip`.
    pub fn name(&self, space: &str) -> String {
        format!("uview-figures-{space}-{}", self.0)
    }

    /// Runs `work` in a thread inside a namespace.
    ///
    /// # Errors
    ///
    /// Errors of `work`; or the namespace cannot be entered.
    pub fn within<T: Send>(&self, space: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = File::open(format!("/run/netns/{}", self.name(space)))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            thread.join().map_err(|_| anyhow!("a thread in a namespace broke down"))?
        })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for space in [Self::HERE, Self::THERE] {
            _ = ip(&["netns", "delete", &self.name(space)]);
        }
    }
}

/// Runs `ip` with these arguments.
///
/// # Errors
///
/// The error output of `ip`.
fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(())
}
