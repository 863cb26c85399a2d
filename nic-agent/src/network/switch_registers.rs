//! A switch that is asked over the network.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use agent_runtime::clock::Clock;
use packets::switch::clock::SwitchClock;
use packets::switch::registers::{BlockError, SwitchRegisters, main_control};
use packets::switch::thrift::{SwitchTime, ThriftError, answer, answer_time, ask, ask_time};
use thiserror::Error;
use wire::time::Nanos;

/// How long a switch may take for all answers to a poll; to the first one, with the connection and its time.
const PATIENCE: Nanos = Nanos::from_secs(1);

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

/// What is left of the time for a poll that began with this clock.
fn left(poll: Clock) -> io::Result<Duration> {
    let left = PATIENCE.since(poll.now()).filter(|left| *left > Nanos::ZERO);
    left.map(Duration::from).ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "it is too slow"))
}

/// A connection that is waited for as long as a poll may take.
#[derive(Debug)]
struct Timed<'a> {
    stream: &'a TcpStream,
    poll: Clock,
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.poll)?))?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.poll)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// An open connection to a switch.
#[derive(Debug)]
pub(super) struct RemoteSwitch {
    stream: TcpStream,
    /// Runs since the poll began.
    poll: Clock,
    /// The main control of its program, in front of the names of registers.
    control: &'static str,
    sequence: u32,
}

impl RemoteSwitch {
    /// Connects to the control interface at `address`, a host and a port, of a switch that runs `program`. The first
    /// poll begins.
    ///
    /// # Errors
    ///
    /// [`SwitchError::Connect`] if that fails.
    pub(super) fn connect(address: &str, program: &str) -> Result<Self, SwitchError> {
        let control = main_control(program).unwrap_or_default();
        let poll = Clock::start();
        let connect = || {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in address.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, left(poll)?) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(Self { stream, poll, control, sequence: 0 });
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        connect().map_err(|error| SwitchError::Connect(address.to_owned(), error))
    }

    /// Begins another poll, whose answers may take as long as those of the one before.
    pub(super) fn begin_poll(&mut self) {
        self.poll = Clock::start();
    }

    const fn timed(&self) -> Timed<'_> {
        Timed { stream: &self.stream, poll: self.poll }
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
        ask_time(self.timed(), time, self.sequence)?;
        answer_time(io::BufReader::new(self.timed()), time, self.sequence)
    }
}

impl SwitchRegisters for RemoteSwitch {
    type Error = SwitchError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, SwitchError> {
        let name = format!("{}.{name}", self.control);
        self.sequence = self.sequence.wrapping_add(1);
        ask(self.timed(), &name, self.sequence)?;
        Ok(answer(io::BufReader::new(self.timed()), &name, self.sequence)?)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use packets::switch::thrift::reply;

    use super::*;

    #[test]
    fn a_poll_has_one_time_for_all_answers_and_the_next_one_has_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut remote = RemoteSwitch::connect(&listener.local_addr().unwrap().to_string(), "fridge").unwrap();
        let (switch, _) = listener.accept().unwrap();
        reply(&switch, 2, Some(&[7])).unwrap();
        remote.poll = Clock::started_before(PATIENCE.into());

        let error = remote.array("a").unwrap_err();

        let SwitchError::Thrift(ThriftError::Io(why)) = &error else { panic!("{error}") };
        assert_eq!((why.kind(), &*why.to_string()), (io::ErrorKind::TimedOut, "it is too slow"));
        remote.begin_poll();
        assert_eq!(remote.array("a").unwrap(), [7]);
    }
}
