//! Two network namespaces, joined by a pair of interfaces.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;

use anyhow::{Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The namespaces; gone with their interfaces, `here0` and `there0`, when this is dropped.
pub struct Spaces(u32);

impl Spaces {
    pub const HERE: &str = "here";
    pub const THERE: &str = "there";

    /// Both, and a loopback interface in each.
    ///
    /// # Errors
    ///
    /// `ip` cannot make them.
    pub fn make() -> Result<Self> {
        let spaces = Self(std::process::id());
        let (here, there) = (spaces.name(Self::HERE), spaces.name(Self::THERE));
        for name in [&here, &there] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        ip(&["-n", &here, "link", "add", "here0", "type", "veth", "peer", "name", "there0", "netns", &there])?;
        // Without addresses nothing is sent that nobody asked for.
        ip(&["-n", &here, "link", "set", "here0", "addrgenmode", "none", "up"])?;
        ip(&["-n", &there, "link", "set", "there0", "addrgenmode", "none", "up"])?;
        Ok(spaces)
    }

    /// The name of a space, as `ip` has it.
    pub fn name(&self, space: &str) -> String {
        format!("uview-figures-{space}-{}", self.0)
    }

    /// Does `work` in a thread that is in a space.
    ///
    /// # Errors
    ///
    /// Those of `work`; the space cannot be entered.
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

impl Drop for Spaces {
    fn drop(&mut self) {
        for space in [Self::HERE, Self::THERE] {
            _ = ip(&["netns", "delete", &self.name(space)]);
        }
    }
}

/// Runs `ip`.
///
/// # Errors
///
/// What it says.
fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(())
}
