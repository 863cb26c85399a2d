//! The interpreter as a switch that can be asked: the one call of the reference switch's control interface that an
//! agent makes, over TCP. Anybody who reaches the port may ask, as with the reference switch.

use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use packets::switch::registers::{BlockError, SwitchRegisters};
use packets::switch::thrift::{ThriftError, call, reply};

use crate::frames::{AGENT_PORT, Captured};
use crate::interpreter::{Fault, Machine, Sent};
use crate::registers::short;

/// The registers of a switch of this process.
#[derive(Debug)]
pub struct Local<'a>(pub &'a Machine);

impl SwitchRegisters for Local<'_> {
    type Error = BlockError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
        let is = |there: &str| there == name || there.strip_suffix(name).is_some_and(|front| front.ends_with('.'));
        let array = self.0.program().registers().iter().find(|array| is(&array.name));
        // Without such an array it is one without entries.
        Ok(array.and_then(|array| self.0.registers(&array.name)).unwrap_or_default())
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
    connections: Mutex<Vec<TcpStream>>,
    stop: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switch {
    /// Answers on `listener` from now on, until it is dropped.
    ///
    /// # Errors
    ///
    /// The listener has no address, or the system no thread.
    pub fn start(machine: Machine, listener: TcpListener) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            machine: Mutex::new(machine),
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
        lock(&self.shared.machine).process(AGENT_PORT, 0, &captured.replayed())
    }

    /// All registers are 0 from now on, as in a switch that has started again.
    pub fn start_again(&self) {
        let mut machine = lock(&self.shared.machine);
        *machine = machine.empty();
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
            let entries = lock(&self.machine).registers(&asked.name);
            reply(stream, &asked, entries.as_deref())?;
        }
        Ok(())
    }
}
