//! The socket and the thread of a process that answer probes.
//!
//! Must never: call MPI, or wait for anything but a datagram.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use super::message::{BYTES, Content, Message, Token};
use super::{Entry, contact};
use ftsort_core::transport::watch::Contact;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::without_signals;

/// Answers the probes to all groups of this process until it is dropped.
pub struct Responder {
    shared: Arc<Shared>,
    addresses: Vec<Ipv4Addr>,
    port: u16,
    /// The process that started the thread. A fork of it has no thread.
    process: u32,
    /// Its shutdown ends the thread.
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// The data that the thread and the groups share.
struct Shared {
    socket: UdpSocket,
    entries: Mutex<BTreeMap<Token, Arc<Entry>>>,
}

/// The responder of this process, as long as a group has it.
static RESPONDER: Mutex<Weak<Responder>> = Mutex::new(Weak::new());

/// The stack of the thread, which calls few functions of the system.
const STACK_BYTES: usize = 128 << 10;

impl Responder {
    /// Returns the responder of this process. It is started if there is none.
    pub fn of_process() -> Result<Arc<Responder>> {
        let mut current = RESPONDER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(responder) = current.upgrade()
            && responder.process == std::process::id()
        {
            return Ok(responder);
        }
        let started = Responder::start().map_err(|error| {
            let text =
                format!("the system refuses a socket or a thread for signs of life: {error}");
            Error::new(Status::State, text)
        })?;
        let started = Arc::new(started);
        *current = Arc::downgrade(&started);
        Ok(started)
    }

    fn start() -> io::Result<Responder> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // Neither the thread nor a group ever waits in a call with the socket.
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let (stop, stopped) = UnixStream::pair()?;
        let shared = Arc::new(Shared {
            socket,
            entries: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let builder = Builder::new()
            .name("ftsort liveness".into())
            .stack_size(STACK_BYTES);
        let thread = without_signals(|| builder.spawn(move || served.run(&stopped)))?;
        Ok(Responder {
            shared,
            addresses: contact::own_addresses(),
            port,
            process: std::process::id(),
            stop,
            thread: Some(thread),
        })
    }

    /// From now on probes with the token of this group are answered.
    pub fn register(&self, entry: &Arc<Entry>) {
        self.shared.entries().insert(entry.token, Arc::clone(entry));
    }

    /// Ends the registration of a group.
    pub fn remove(&self, token: &Token) {
        self.shared.entries().remove(token);
    }

    /// The contact of a group with this token.
    pub fn contact(&self, token: &Token) -> Contact {
        contact::encode(token, self.port, &self.addresses)
    }

    /// Sends a message, which may be lost.
    pub fn send(&self, to: SocketAddrV4, message: &Message) {
        let _ = self.shared.socket.send_to(&message.encode(), to);
    }

    /// Sends a message to each address of a rank, and by the loopback if the rank may be on this host.
    pub fn send_to_all(&self, addresses: &[SocketAddrV4], message: &Message) {
        let is_own = |address: &&SocketAddrV4| self.addresses.contains(address.ip());
        let shared = addresses.iter().find(is_own);
        for address in addresses.iter().filter(|address| !is_own(address)) {
            self.send(*address, message);
        }
        if let Some(address) = shared {
            self.send(
                SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port()),
                message,
            );
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && self.process == std::process::id()
        {
            // A fork may have the stream too, so closing it is not enough. The thread does not panic.
            let _ = self.stop.shutdown(Shutdown::Both);
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<Token, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers probes and notes answers until `stopped` ends.
    fn run(&self, stopped: &UnixStream) {
        while self.wait(stopped) {
            // One byte more than a message, to see that a datagram is longer.
            let mut bytes = [0; BYTES + 1];
            loop {
                match self.socket.recv_from(&mut bytes) {
                    Ok((length, SocketAddr::V4(from))) => self.receive(&bytes[..length], from),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Blocks until a datagram arrives. Returns false once `stopped` has ended.
    fn wait(&self, stopped: &UnixStream) -> bool {
        let awaited = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [
            awaited(self.socket.as_raw_fd()),
            awaited(stopped.as_raw_fd()),
        ];
        loop {
            // SAFETY: the array has two elements, and both descriptors are open.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
            if ready > 0 {
                return fds[1].revents == 0;
            }
            if io::Error::last_os_error().kind() != ErrorKind::Interrupted {
                return false;
            }
        }
    }

    fn receive(&self, bytes: &[u8], from: SocketAddrV4) {
        let Some(message) = Message::decode(bytes) else {
            return;
        };
        let Some(entry) = self.entries().get(&message.token).map(Arc::clone) else {
            return;
        };
        match message.content {
            Content::Probe(reply) => {
                let _ = self.socket.send_to(&entry.answer(reply).encode(), from);
            }
            _ => entry.note(from, &message),
        }
    }
}

/// Draws a token from the system.
pub fn random_token() -> Result<Token> {
    let mut token = Token::default();
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut token));
    read.map_err(|error| {
        let text = format!("/dev/urandom cannot be read for a token: {error}");
        Error::new(Status::State, text)
    })?;
    Ok(token)
}
