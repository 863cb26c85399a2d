//! A switch that is asked over the network.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use packets::switch::clock::SwitchClock;
use packets::switch::registers::{BlockError, SwitchRegisters, main_control};
use packets::switch::thrift::{SwitchTime, ThriftError, answer, answer_time, ask, ask_time};
use thiserror::Error;

/// How long a switch may take to be connected to, and for each piece of an answer.
const PATIENCE: Duration = Duration::from_secs(1);

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
    /// It has no such call, or broke off.
    #[error("the switch does not say its time: network.streams.switch.clock_offset_ns can name its offset")]
    Time(#[source] ThriftError),
}

/// An open connection to a switch.
#[derive(Debug)]
pub(super) struct RemoteSwitch {
    stream: TcpStream,
    /// The main control of its program, in front of the names of registers.
    control: &'static str,
    sequence: u32,
}

impl RemoteSwitch {
    /// Connects to the control interface at `address`, a host and a port, of a switch that runs `program`.
    ///
    /// # Errors
    ///
    /// [`SwitchError::Connect`] if that fails.
    pub(super) fn connect(address: &str, program: &str) -> Result<Self, SwitchError> {
        let control = main_control(program).unwrap_or_default();
        let connect = || {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in address.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, PATIENCE) {
                    Ok(stream) => {
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.set_write_timeout(Some(PATIENCE))?;
                        stream.set_nodelay(true)?;
                        return Ok(Self { stream, control, sequence: 0 });
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        connect().map_err(|error| SwitchError::Connect(address.to_owned(), error))
    }

    /// Asks how far the clock of its machine is ahead of its time.
    ///
    /// # Errors
    ///
    /// [`SwitchError::Time`] if it does not say that.
    pub(super) fn clock(&mut self) -> Result<SwitchClock, SwitchError> {
        let mut times = [0; 3];
        let asked = [SwitchTime::Elapsed, SwitchTime::Epoch, SwitchTime::Elapsed];
        for (time_us, time) in times.iter_mut().zip(asked) {
            *time_us = self.time(time).map_err(SwitchError::Time)?;
        }
        Ok(SwitchClock::measured(times))
    }

    /// Asks for its time since its start, that of its live packets, in nanoseconds.
    ///
    /// # Errors
    ///
    /// [`SwitchError::Time`] if it does not say that.
    pub(super) fn elapsed_ns(&mut self) -> Result<u64, SwitchError> {
        let elapsed_us = self.time(SwitchTime::Elapsed).map_err(SwitchError::Time)?;
        Ok(elapsed_us.saturating_mul(1_000))
    }

    fn time(&mut self, time: SwitchTime) -> Result<u64, ThriftError> {
        self.sequence = self.sequence.wrapping_add(1);
        ask_time(&mut self.stream, time, self.sequence)?;
        answer_time(io::BufReader::new(&mut self.stream), time, self.sequence)
    }
}

impl SwitchRegisters for RemoteSwitch {
    type Error = SwitchError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, SwitchError> {
        let name = format!("{}.{name}", self.control);
        self.sequence = self.sequence.wrapping_add(1);
        ask(&mut self.stream, &name, self.sequence)?;
        Ok(answer(io::BufReader::new(&mut self.stream), &name, self.sequence)?)
    }
}
