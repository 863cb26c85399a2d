//! The interpreter as a switch that can be asked: the calls of the reference switch's control interface that an agent
//! makes, over TCP. Anybody who reaches the port may ask, as with the reference switch.

use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use packets::switch::registers::{BlockError, SwitchRegisters, main_control};
use packets::switch::thrift::{CallSubject, SwitchTime, ThriftError, call, reply, reply_time};

use crate::frames::{AGENT_PORT, Captured};
use crate::interpreter::{Fault, Machine, Sent};
use crate::registers::short;

/// The registers of a switch of this process, which runs the program of this name.
#[derive(Debug)]
pub struct Local<'a>(pub &'a Machine, pub &'static str);

impl SwitchRegisters for Local<'_> {
    type Error = BlockError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
        let name = format!("{}.{name}", main_control(self.1).unwrap_or_default());
        // Without such an array it is one without entries.
        Ok(self.0.registers(&name).unwrap_or_default())
    }
}

/// A switch that runs a program and answers whoever asks for its registers.
#[derive(Debug)]
pub struct Switch {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    machine: Mutex<Machine>,
    /// When the switch's time began, in nanoseconds since 1970.
    began_ns: AtomicU64,
    /// The time of the latest frame, since then: the interpreter has no clock of its own.
    time_ns: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
    stop: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switch {
    /// Answers on `listener` from now on, until it is dropped. Its time is that since 1970.
    ///
    /// # Errors
    ///
    /// The listener has no address, or the system no thread.
    pub fn start(machine: Machine, listener: TcpListener) -> std::io::Result<Self> {
        Self::start_at(machine, listener, 0)
    }

    /// Likewise, with a time that began at `began_ns` since 1970, as that of live packets does when a switch starts.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_at(machine: Machine, listener: TcpListener, began_ns: u64) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            machine: Mutex::new(machine),
            began_ns: AtomicU64::new(began_ns),
            time_ns: AtomicU64::new(0),
            connections: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let of = Arc::clone(&shared);
        drop(thread::Builder::new().name("control".to_owned()).spawn(move || of.accept(&listener))?);
        Ok(Self { shared, address })
    }

    /// Where it can be asked.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Processes a frame that was captured elsewhere, at the time of its capture.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the program does what a switch cannot do.
    pub fn process(&self, captured: &Captured) -> Result<Option<Sent>, Fault> {
        let began_ns = self.shared.began_ns.load(Ordering::Relaxed);
        self.shared.time_ns.fetch_max(captured.time_ns.saturating_sub(began_ns), Ordering::Relaxed);
        lock(&self.shared.machine).process(AGENT_PORT, 0, &captured.replayed_since(began_ns))
    }

    /// Processes a live frame that arrived at `port`, at the time of its capture. Returns the frame that leaves, if one
    /// does, and by which port.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the program does what a switch cannot do.
    pub fn forward(&self, port: u16, captured: &Captured) -> Result<Option<Sent>, Fault> {
        let elapsed_ns = captured.time_ns.saturating_sub(self.shared.began_ns.load(Ordering::Relaxed));
        self.shared.time_ns.fetch_max(elapsed_ns, Ordering::Relaxed);
        lock(&self.shared.machine).process(port, elapsed_ns / 1_000, &captured.bytes)
    }

    /// All registers are 0 from now on, as in a switch that has started again. Its time goes on.
    pub fn start_again(&self) {
        let mut machine = lock(&self.shared.machine);
        *machine = machine.empty();
    }

    /// Likewise, with a time that began anew at `began_ns` since 1970, as that of live packets does. Connections stay.
    pub fn start_again_at(&self, began_ns: u64) {
        self.start_again();
        self.shared.began_ns.store(began_ns, Ordering::Relaxed);
        self.shared.time_ns.store(0, Ordering::Relaxed);
    }

    /// Entries of the first array of registers with this last name; none if there is no such array.
    #[must_use]
    pub fn registers(&self, name: &str) -> Vec<u64> {
        let machine = lock(&self.shared.machine);
        let array = machine.program().registers().iter().find(|array| short(&array.name) == name);
        array.and_then(|array| machine.registers(&array.name)).unwrap_or_default()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        for connection in &*lock(&self.shared.connections) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().map_while(Result::ok) {
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let Ok(again) = stream.try_clone() else { continue };
            lock(&self.connections).push(again);
            let of = Arc::clone(self);
            // Whoever does not ask in this protocol is hung up on.
            drop(thread::Builder::new().name("control".to_owned()).spawn(move || of.answer(&stream)));
        }
    }

    fn answer(&self, stream: &TcpStream) -> Result<(), ThriftError> {
        let mut from = BufReader::new(stream);
        while let Some(asked) = call(&mut from)? {
            match asked.subject {
                CallSubject::Registers(name) => {
                    let entries = lock(&self.machine).registers(&name);
                    reply(stream, asked.sequence, entries.as_deref())?;
                }
                CallSubject::Time(time) => {
                    let elapsed_ns = self.time_ns.load(Ordering::Relaxed);
                    let time_ns = match time {
                        SwitchTime::Elapsed => elapsed_ns,
                        SwitchTime::Epoch => self.began_ns.load(Ordering::Relaxed) + elapsed_ns,
                    };
                    reply_time(stream, asked.sequence, time, time_ns / 1_000)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Subject;

    #[test]
    fn a_live_frame_leaves_by_the_other_end_of_its_wire_as_it_came() {
        const BEGAN_NS: u64 = 1_700_000_000_000_000_000;
        let program = Subject::of_name("fridge").expect("a program").load().expect("a compiled program");
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let switch = Switch::start_at(Machine::new(program.into()), listener, BEGAN_NS).expect("a thread");

        for (port, other) in [(0, 1), (1, 0), (2, 3)] {
            let captured = Captured { time_ns: BEGAN_NS + 5_000, bytes: vec![port as u8; 60] };
            let sent = switch.forward(port, &captured).expect("a program that a switch can run");
            assert_eq!(sent, Some(Sent { port: other, bytes: captured.bytes }));
        }
        assert_eq!(switch.registers("frames"), [3]);
    }
}
