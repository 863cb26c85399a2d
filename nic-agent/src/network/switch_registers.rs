//! A switch that is asked over the network.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use packets::switch::registers::{BlockError, SwitchRegisters};
use packets::switch::thrift::{ThriftError, answer, ask};
use thiserror::Error;

/// How long a switch may take to be connected to, and for each piece of an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The main control of the program, in front of the names of its registers.
const CONTROL: &str = "Handshakes";

/// Why a switch was not read.
#[derive(Debug, Error)]
pub(super) enum SwitchError {
    /// There is nobody at its address.
    #[error("cannot connect to the switch at {0}")]
    Connect(String, #[source] io::Error),
    /// It does not answer as it should.
    #[error(transparent)]
    Thrift(#[from] ThriftError),
    /// Its registers are not those of the program.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// An open connection to a switch.
#[derive(Debug)]
pub(super) struct RemoteSwitch {
    stream: TcpStream,
    sequence: u32,
}

impl RemoteSwitch {
    /// Connects to the control interface at `address`, a host and a port.
    ///
    /// # Errors
    ///
    /// [`SwitchError::Connect`] if that fails.
    pub(super) fn connect(address: &str) -> Result<Self, SwitchError> {
        let connect = || {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in address.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, PATIENCE) {
                    Ok(stream) => {
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.set_write_timeout(Some(PATIENCE))?;
                        stream.set_nodelay(true)?;
                        return Ok(Self { stream, sequence: 0 });
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        connect().map_err(|error| SwitchError::Connect(address.to_owned(), error))
    }
}

impl SwitchRegisters for RemoteSwitch {
    type Error = SwitchError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, SwitchError> {
        let name = format!("{CONTROL}.{name}");
        self.sequence = self.sequence.wrapping_add(1);
        ask(&mut self.stream, &name, self.sequence)?;
        Ok(answer(io::BufReader::new(&mut self.stream), &name, self.sequence)?)
    }
}
