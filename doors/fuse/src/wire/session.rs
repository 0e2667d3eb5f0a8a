//! A mount's connection: the handshake, then readers that take requests until the kernel closes it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use braid_base::burst::{self, BURST_MAX};
use bytes::Bytes;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno as Os;
use tokio::runtime::Handle;

use super::abi::uring::PAYLOAD_BYTES_MIN;
use super::abi::{self, feature, op};
use super::buffer::{Buffer, Pool};
use super::encode::{Body, Settings};
use super::errno::Errno;
use super::inflight::{Inflight, Way};
use super::notify::Notifier;
use super::reply::{self, Devices, Reply};
use super::request::{Header, Init, Op, Write};
use super::ring::Ring;
use super::stale::Stale;
use super::together::Together;
use super::uring::{self, Queue};
use super::{device, watch};

/// What serves the requests. Each call must return soon and may reply later.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Any request but a write.
    fn request(&self, header: &Header, op: Op<'_>, reply: Reply);
    /// A write of `data`.
    fn write(&self, header: &Header, write: Write, data: Bytes, reply: Reply);
}

/// A connection after its handshake.
pub(crate) struct Session {
    devices: Arc<Devices>,
    pool: Arc<Pool>,
    /// As many as the devices have lanes.
    rings: Vec<Ring>,
    payload_bytes: usize,
}

impl Session {
    /// Agrees with the kernel behind `file` on `settings`; blocks for it. `readers` threads will take requests, or
    /// those of io_uring if settings have that feature and this host lets it be. `together`: replies of tasks of the
    /// runtime may wait for each other. Errors: a kernel that is too old, and those of the device.
    pub(crate) fn start(file: OwnedFd, settings: &Settings, readers: usize, together: bool) -> io::Result<Self> {
        let pool = Pool::new(settings.max_write as usize);
        let (mut settings, mut rings, mut lanes) = (*settings, Vec::new(), Vec::new());
        if settings.features & feature::OVER_IO_URING != 0 {
            match uring::open() {
                Ok(opened) => (rings, lanes) = opened,
                Err(why) => {
                    tracing::warn!("no requests over io_uring, this mount goes on over /dev/fuse: {why}");
                    settings.features &= !feature::OVER_IO_URING;
                }
            }
        }
        let agreed = handshake(&file, &settings, &mut pool.buffer())?;
        if agreed & feature::OVER_IO_URING == 0 {
            if !rings.is_empty() {
                tracing::warn!("the kernel does not offer requests over io_uring: this mount goes on over /dev/fuse");
            }
            (rings, lanes) = (Vec::new(), Vec::new());
        }
        // Beside io_uring little is left for the device, but an interrupt must not wait.
        let readers = if rings.is_empty() { readers } else { readers.min(2) };
        let mut files = vec![file];
        for _ in 1..readers {
            let more = device::clone(files[0].as_fd()).or_else(|error| {
                tracing::info!(%error, "this kernel gives readers no queue of their own; they share one");
                files[0].try_clone()
            })?;
            files.push(more);
        }
        let together = if together && lanes.is_empty() {
            let alone = |error: &io::Error| tracing::info!(%error, "without io_uring each reply leaves by itself");
            Together::new().inspect_err(alone).ok()
        } else {
            None
        };
        let devices =
            Arc::new(Devices { files, lanes, inflight: Inflight::default(), stale: Stale::default(), together });
        let payload_bytes = (settings.max_write as usize).max(PAYLOAD_BYTES_MIN);
        Ok(Self { devices, pool, rings, payload_bytes })
    }

    pub(crate) fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.devices))
    }

    /// Has `server` serve requests until the kernel closes the connection. The readers are threads, or tasks of a
    /// `runtime` whose threads are those that bring the answers. Errors: those of the device.
    pub(crate) fn run(self, server: &Arc<impl Serve>, runtime: Option<&Handle>) -> io::Result<()> {
        let (devices, pool, payload_bytes) = (&self.devices, &self.pool, self.payload_bytes);
        thread::scope(|scope| {
            let (stop, stopped) = sync_channel(0);
            let named = |name: String| thread::Builder::new().name(name);
            named("fuse-watch".to_owned()).spawn_scoped(scope, move || watch::run(devices, &stopped))?;
            if let Some(runtime) = runtime.filter(|_| self.rings.is_empty()) {
                return run_on(runtime, devices, pool, server);
            }
            let server = &**server;
            let mut readers = Vec::new();
            for (lane, ring) in self.rings.into_iter().enumerate() {
                let queue = Queue { devices, lane, ring, pool, payload_bytes };
                match named(format!("fuse-ring-{lane}")).spawn_scoped(scope, move || queue.serve(server)) {
                    Ok(thread) => readers.push(thread),
                    Err(error) => {
                        tracing::warn!(%error, "no thread for requests over io_uring: this mount goes on over /dev/fuse");
                        if let Err(error) = uring::refuse(devices.files[0].as_fd()) {
                            tracing::error!(%error, "the kernel was not told: this mount may hang");
                        }
                        break;
                    }
                }
            }
            for reader in 1..devices.files.len() {
                let read = move || read_all(devices, reader, pool, server);
                readers.push(named(format!("{READER}{reader}")).spawn_scoped(scope, read)?);
            }
            let mut end = read_all(devices, 0, pool, server);
            devices.lanes.iter().for_each(|lane| lane.close());
            for reader in readers {
                end = end.and(reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader panicked"))));
            }
            drop(stop);
            end
        })
    }
}

/// The readers are tasks of `runtime`; waits for their end.
fn run_on(runtime: &Handle, devices: &Arc<Devices>, pool: &Arc<Pool>, server: &Arc<impl Serve>) -> io::Result<()> {
    let start = |reader| {
        let (devices, pool, server) = (Arc::clone(devices), Arc::clone(pool), Arc::clone(server));
        runtime.spawn(async move { take_turns(&devices, reader, &pool, &*server).await })
    };
    let readers: Vec<_> = (0..devices.files.len()).map(start).collect();
    // All of them, whatever the first one says.
    let mut end = Ok(());
    for reader in readers {
        end = end.and(runtime.block_on(reader).unwrap_or_else(|error| match error.is_cancelled() {
            // The process is ending.
            true => Ok(()),
            false => Err(io::Error::other("a reader panicked")),
        }));
    }
    end
}

/// The features that were agreed on.
fn handshake(file: &OwnedFd, settings: &Settings, buffer: &mut Buffer) -> io::Result<u64> {
    loop {
        let len = match read(file, buffer)? {
            Read::Request(len) => len,
            Read::Nothing => continue,
            Read::End => return Err(io::Error::other("the mount went away")),
        };
        let (header, offer) = first_request(buffer.request(len)).ok_or_else(|| {
            io::Error::other(format!("expected the kernel's first request, found {len} bytes of something else"))
        })?;
        if offer.major > abi::MAJOR {
            reply::write(file, header.unique, 0, Body::new().version().bytes())?;
            continue;
        }
        if offer.major < abi::MAJOR || offer.minor < abi::MINOR_LEAST {
            let _ = reply::write(file, header.unique, -Errno::EPROTO.code(), &[]);
            return Err(io::Error::other(format!(
                "this kernel speaks FUSE {}.{}; {}.{} is needed, which is Linux 3.15",
                offer.major,
                offer.minor,
                abi::MAJOR,
                abi::MINOR_LEAST
            )));
        }
        let (body, agreed) = Body::new().init(&offer, settings);
        tracing::debug!(minor = offer.minor, offered = offer.features, agreed, "handshake");
        return reply::write(file, header.unique, 0, body.bytes()).map(|()| agreed);
    }
}

fn first_request(request: &[u8]) -> Option<(Header, Init)> {
    let header = Header::parse(request)?;
    match Op::parse(header.opcode, header.body(request)) {
        Some(Op::Init(offer)) => Some((header, offer)),
        _ => None,
    }
}

/// Threads that take requests are called so, with a number.
const READER: &str = "fuse-reader-";
/// A request of more bytes ends its burst: taking it took as long as others may wait.
const LONG: usize = 32 << 10;

/// What a reader found.
enum Read {
    /// A request of so many bytes.
    Request(usize),
    /// No more now.
    Nothing,
    /// The connection is closed.
    End,
}

/// Reads one request into `buffer`.
fn read(file: &OwnedFd, buffer: &mut Buffer) -> io::Result<Read> {
    loop {
        match rustix::io::read(file, &mut *buffer.room()) {
            Ok(0) => return Ok(Read::End),
            Ok(len) => return Ok(Read::Request(len)),
            // The request was interrupted before it was read, or this call was: the next one comes.
            Err(Os::NOENT | Os::INTR) => {}
            Err(Os::AGAIN) => return Ok(Read::Nothing),
            Err(Os::NODEV | Os::CONNABORTED) => return Ok(Read::End),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes requests in bursts: those that are there before what the first of them sends is on its way.
fn read_all(devices: &Arc<Devices>, reader: usize, pool: &Arc<Pool>, server: &impl Serve) -> io::Result<()> {
    let file = &devices.files[reader];
    rustix::io::ioctl_fionbio(file, true)?;
    // One request wakes one reader.
    let ready = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&ready, file, EventData::new_u64(0), EventFlags::IN | EventFlags::EXCLUSIVE)?;
    let mut buffer = pool.buffer();
    loop {
        match burst::run(|| take_some(devices, reader, &mut buffer, server))? {
            Read::Request(_) => {}
            Read::Nothing => wait(&ready)?,
            Read::End => return Ok(()),
        }
    }
}

/// The same as a task, between two bursts of which the others of its thread have their turn.
async fn take_turns(devices: &Arc<Devices>, reader: usize, pool: &Arc<Pool>, server: &impl Serve) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&devices.files[reader], true)?;
    let watched = device::watch(&devices.files[reader])?;
    let mut buffer = pool.buffer();
    loop {
        let mut ready = watched.ready(device::READY).await?;
        match burst::run(|| take_some(devices, reader, &mut buffer, server))? {
            Read::Request(_) => tokio::task::yield_now().await,
            Read::Nothing => ready.clear_ready(),
            Read::End => return Ok(()),
        }
    }
}

/// A burst of requests; what was found last.
fn take_some(devices: &Arc<Devices>, reader: usize, buffer: &mut Buffer, server: &impl Serve) -> io::Result<Read> {
    for _ in 0..BURST_MAX {
        match read(&devices.files[reader], buffer)? {
            Read::Request(len) => {
                let _ = take(devices, Way::Device(reader), buffer, len, server);
                if len > LONG {
                    break;
                }
            }
            other => return Ok(other),
        }
    }
    Ok(Read::Request(0))
}

fn wait(ready: &OwnedFd) -> io::Result<()> {
    let mut events = [MaybeUninit::uninit(); 1];
    match epoll::wait(ready, &mut events, None) {
        Ok(_) | Err(Os::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Hands the request of `len` bytes in `buffer` to `server`. `Some`: nobody will reply to it.
pub(crate) fn take(
    devices: &Arc<Devices>,
    way: Way,
    buffer: &mut Buffer,
    len: usize,
    server: &impl Serve,
) -> Option<Way> {
    let Some(header) = Header::parse(buffer.request(len)) else {
        tracing::error!(len, "what the kernel sent is no request");
        return Some(way);
    };
    let body = header.body(buffer.request(len));
    let malformed = || tracing::error!(opcode = header.opcode, len, "a request of the kernel is malformed");
    if header.opcode == op::WRITE {
        let write = Write::parse(body);
        let reply = expect_reply(devices, way, &header);
        match write {
            Some(write) => server.write(&header, write, buffer.take_data(write.size as usize), reply),
            None => {
                malformed();
                reply.error(Errno::EIO);
            }
        }
        return None;
    }
    match Op::parse(header.opcode, body) {
        Some(Op::Forget) => return Some(way),
        Some(Op::Interrupt { unique }) => {
            devices.inflight.interrupt(unique);
            return Some(way);
        }
        Some(op) => server.request(&header, op, expect_reply(devices, way, &header)),
        None => {
            malformed();
            if matches!(header.opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT) {
                return Some(way);
            }
            expect_reply(devices, way, &header).error(Errno::EIO);
        }
    }
    None
}

fn expect_reply(devices: &Arc<Devices>, way: Way, header: &Header) -> Reply {
    // Only waits for locks end early: whatever else a signal interrupts is over soon, and then its outcome is known.
    let listener = (header.opcode == op::SETLKW).then(Arc::default);
    devices.inflight.enter(header.unique, way, header.tid, listener.clone());
    Reply::new(Arc::clone(devices), header.unique, listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use bytes::Bytes;

    use super::{Serve, Session};
    use crate::wire::abi::{self, op};
    use crate::wire::encode::Settings;
    use crate::wire::errno::Errno;
    use crate::wire::reply::Reply;
    use crate::wire::request::{Header, Op, Write};

    const SETTINGS: Settings = Settings { features: 0, max_write: 1 << 20, max_background: 8 };

    /// Keeps what it cannot answer; asked on a runtime, or not.
    struct Server(Mutex<Vec<Reply>>, bool);

    impl Serve for Server {
        fn request(&self, _header: &Header, op: Op<'_>, reply: Reply) {
            assert_eq!(tokio::runtime::Handle::try_current().is_ok(), self.1);
            match op {
                Op::Unknown => reply.error(Errno::ENOSYS),
                Op::Lookup { name } => reply.data(name),
                Op::Getattr => drop(reply),
                _ => self.0.lock().expect("no panic").push(reply),
            }
        }

        fn write(&self, _header: &Header, write: Write, data: Bytes, reply: Reply) {
            assert_eq!(write.size as usize, data.len());
            reply.data(&data);
        }
    }

    /// The kernel's end of a connection: a socket keeps the bounds of messages as the device does.
    struct Kernel(UnixDatagram);

    impl Kernel {
        fn pair() -> (Self, std::os::fd::OwnedFd) {
            let (kernel, device) = UnixDatagram::pair().expect("sockets");
            kernel.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            (Self(kernel), device.into())
        }

        fn ask(&self, opcode: u32, unique: u64, body: &[u8]) {
            let len = (abi::IN_HEADER_BYTES + body.len()) as u32;
            let mut request = [len.to_ne_bytes(), opcode.to_ne_bytes()].concat();
            request.extend(unique.to_ne_bytes());
            request.resize(abi::IN_HEADER_BYTES, 0);
            self.0.send(&[&request, body].concat()).expect("sent");
        }

        /// Number, error and body of the next reply.
        fn reply(&self) -> (u64, i32, Vec<u8>) {
            let mut bytes = vec![0; 4096];
            let len = self.0.recv(&mut bytes).expect("a reply");
            assert_eq!(bytes[..4], (len as u32).to_ne_bytes());
            let error = i32::from_ne_bytes(bytes[4..8].try_into().expect("four"));
            (u64::from_ne_bytes(bytes[8..16].try_into().expect("eight")), error, bytes[16..len].to_vec())
        }

        fn init(&self, major: u32, minor: u32) {
            let body = [major, minor, 65_536, 0].map(u32::to_ne_bytes).concat();
            self.ask(op::INIT, 2, &body);
        }
    }

    #[test]
    fn the_handshake_takes_kernels_old_and_new() {
        for (minor, agreed) in [(23, 23), (45, 45), (99, 45)] {
            let (kernel, device) = Kernel::pair();
            // A kernel of the far future is first told what is spoken here.
            kernel.init(8, 0);
            kernel.init(7, minor);
            Session::start(device, &SETTINGS, 1, false).expect("they agree");
            assert_eq!(kernel.reply().2[..4], 7u32.to_ne_bytes());
            assert_eq!(kernel.reply().2[4..8], u32::to_ne_bytes(agreed));
        }
        let (kernel, device) = Kernel::pair();
        kernel.init(7, 22);
        let error = Session::start(device, &SETTINGS, 1, false).err().expect("too old").to_string();
        assert!(error.contains("7.22") && error.contains("7.23"), "{error}");
        assert_eq!(kernel.reply().1, -libc::EPROTO);
        let (kernel, device) = Kernel::pair();
        kernel.0.send(b"what is this").expect("sent");
        assert!(Session::start(device, &SETTINGS, 1, false).is_err());
    }

    #[test]
    fn each_request_gets_one_reply_and_bad_ones_harm_nobody() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        one_reply_each(None);
        one_reply_each(Some(runtime.expect("a runtime").handle()));
    }

    #[test]
    fn replies_of_tasks_leave_together_and_each_arrives() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (kernel, device) = Kernel::pair();
        kernel.init(7, 45);
        let session = Session::start(device, &SETTINGS, 1, true).expect("they agree");
        kernel.reply();
        let (server, devices) = (Arc::new(Server(Mutex::default(), false)), Arc::clone(&session.devices));
        let served = Arc::clone(&server);
        let run = thread::spawn(move || session.run(&served, None));
        let ask = |count: u64| {
            for number in 0..count {
                kernel.ask(op::STATFS, 100 + 2 * number, b"");
            }
            loop {
                let mut asked = server.0.lock().expect("no panic");
                if asked.len() as u64 == count {
                    return std::mem::take(&mut *asked);
                }
                drop(asked);
                thread::yield_now();
            }
        };
        // One alone, several, more than leave at once; and one beside them that was given up.
        for count in [1, 2, 16, 40] {
            let asked = ask(count);
            if count == 40 {
                devices.give_up(100, Errno::EINTR);
                assert_eq!(kernel.reply(), (100, -libc::EINTR, vec![]));
            }
            runtime.spawn(async move {
                asked
                    .into_iter()
                    .enumerate()
                    .for_each(|(number, reply)| reply.together(&vec![number as u8; 90 * number]));
            });
            for number in u64::from(count == 40)..count {
                let body = vec![number as u8; 90 * number as usize];
                assert_eq!(kernel.reply(), (100 + 2 * number, 0, body));
            }
        }
        // Not by a task of a runtime.
        ask(2).into_iter().for_each(|reply| reply.together(b"here"));
        assert_eq!([kernel.reply().0, kernel.reply().0], [100, 102]);
        kernel.0.send(b"").expect("sent");
        run.join().expect("no panic").expect("closed in order");
    }

    /// Over threads, or on a runtime.
    fn one_reply_each(runtime: Option<&tokio::runtime::Handle>) {
        let (kernel, device) = Kernel::pair();
        kernel.init(7, 45);
        let session = Session::start(device, &SETTINGS, 1, false).expect("they agree");
        kernel.reply();
        let (server, devices) = (Arc::new(Server(Mutex::default(), runtime.is_some())), Arc::clone(&session.devices));
        let (served, runtime) = (Arc::clone(&server), runtime.cloned());
        let run = thread::spawn(move || session.run(&served, runtime.as_ref()));
        kernel.0.send(b"garbage").expect("sent");
        kernel.ask(op::LOOKUP, 4, b"no end");
        assert_eq!(kernel.reply(), (4, -libc::EIO, vec![]), "malformed");
        kernel.ask(op::WRITE, 6, &[0xff; 60]);
        assert_eq!(kernel.reply(), (6, -libc::EIO, vec![]), "malformed");
        kernel.ask(4_000, 8, b"?");
        assert_eq!(kernel.reply(), (8, -libc::ENOSYS, vec![]), "unknown");
        kernel.ask(op::FORGET, 10, &[0; 8]);
        kernel.ask(op::LOOKUP, 12, b"name\0");
        assert_eq!(kernel.reply(), (12, 0, b"name".to_vec()), "a forget gets no reply");
        kernel.ask(op::GETATTR, 14, &[0; 16]);
        assert_eq!(kernel.reply(), (14, -libc::EIO, vec![]), "dropped");
        let mut write = [0; abi::WRITE_IN_BYTES];
        write[16] = 3;
        kernel.ask(op::WRITE, 16, &[&write[..], b"abc"].concat());
        assert_eq!(kernel.reply(), (16, 0, b"abc".to_vec()));
        // A request that was given up is not answered again.
        kernel.ask(op::STATFS, 18, b"");
        while server.0.lock().expect("no panic").is_empty() {
            thread::yield_now();
        }
        devices.give_up(18, Errno::EINTR);
        assert_eq!(kernel.reply(), (18, -libc::EINTR, vec![]));
        server.0.lock().expect("no panic").pop().expect("it waits").ok();
        kernel.ask(op::LOOKUP, 20, b"last\0");
        assert_eq!(kernel.reply(), (20, 0, b"last".to_vec()));
        // What the device says with an error, a socket says with an empty message.
        kernel.0.send(b"").expect("sent");
        run.join().expect("no panic").expect("closed in order");
    }
}
