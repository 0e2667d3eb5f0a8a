//! What comes before anybody is known, and what comes sealed, changed in every way that chance finds: handshakes,
//! records, certificates, the sealed authority.
//!
//! `BRAID_FUZZ_RUNS` and `BRAID_FUZZ_SEED`: as in `crate::fuzz`.

use std::io::IoSlice;

use braid_base::ErrorKind;
use braid_base::ids::{Guid, HostId};
use braid_io::buf::AlignedBuf;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

use super::config::server_name;
use super::conn::{Buffer, Conn, Output, Side, Turn};
use super::{Authority, Client, Identity, Server, client_config, join_secret, server_config};
use crate::fuzz::{chance, change, noise, runs};

const CLUSTER: Guid = Guid([5; 16]);
const HOST: HostId = HostId(1);
/// Handshakes, and streams of records, in one run.
const TIMES: u64 = 400;

struct World {
    authority: Authority,
    server: Server,
    client: Client,
}

impl World {
    fn new() -> Self {
        let authority = Authority::new(CLUSTER).expect("an authority");
        let own = authority.issue(HOST).expect("issued");
        let server = server_config(&own).expect("an identity");
        // One that shows a certificate, so that the server has one to read.
        let client = client_config(&authority.ca(), Some(&own)).expect("an authority");
        Self { authority, server, client }
    }

    fn ends(&self) -> (Conn, Conn) {
        let name = server_name(Some(HOST), CLUSTER).expect("a name");
        let client = UnbufferedClientConnection::new(self.client.config.clone(), name).expect("a side");
        let server = UnbufferedServerConnection::new(self.server.config.clone()).expect("a side");
        (Conn::new(Side::Client(client)), Conn::new(Side::Server(server)))
    }
}

/// Lets `conn` do what it can. What it says is returned; the error that ends it, too.
fn said_by(conn: &mut Conn) -> Result<Vec<u8>, rustls::Error> {
    let mut bytes = Vec::new();
    loop {
        let turn = conn.step();
        let mut out = Output::default();
        conn.say(&mut out);
        bytes.extend_from_slice(out.bytes());
        match turn? {
            Turn::Moved => {}
            Turn::Ready | Turn::Blocked | Turn::Ended => return Ok(bytes),
        }
    }
}

/// Gives `bytes` to `conn`, as much at once as a read of the socket may bring.
fn give(conn: &mut Conn, bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut said = Vec::new();
    let most = Buffer::take().room().len();
    for piece in bytes.chunks(most) {
        let mut raw = Buffer::take();
        raw.room()[..piece.len()].copy_from_slice(piece);
        conn.take_in(raw, piece.len())?;
        said.extend(said_by(conn)?);
    }
    Ok(said)
}

#[test]
fn a_handshake_changed_anywhere_fails_or_waits() {
    let (world, mut rng) = (World::new(), chance());
    let mut failed = 0;
    for _ in 0..runs() * TIMES {
        let (mut client, mut server) = world.ends();
        let (mut flight, of) = (said_by(&mut client).expect("a hello"), rng.below(4));
        let mut changed = false;
        let mut shake = || {
            for step in 0..4 {
                if step == of {
                    let before = flight.clone();
                    (0..=rng.below(2)).for_each(|_| change(&mut rng, &mut flight));
                    if rng.chance(1, 8) {
                        flight = noise(&mut rng, 40_000);
                    }
                    changed = flight != before;
                }
                flight = give(if step % 2 == 0 { &mut server } else { &mut client }, &flight)?;
            }
            Ok::<(), rustls::Error>(())
        };
        let ended = shake().is_err();
        let both = !client.common().is_handshaking() && !server.common().is_handshaking();
        assert!(changed || (both && !ended), "nothing was changed, and it failed");
        failed += u64::from(ended);
    }
    assert!(failed > TIMES / 4, "{failed} failed: nothing was tried");
}

/// Reads all that `conn` can tell.
fn read_all(conn: &mut Conn, into: &mut Vec<u8>) -> Result<(), rustls::Error> {
    loop {
        let mut buf = AlignedBuf::with_capacity(64 << 10);
        let most = buf.capacity();
        let got = conn.read(&mut buf, most)?;
        into.extend_from_slice(&buf);
        if got == 0 {
            return Ok(());
        }
    }
}

#[test]
fn of_sealed_records_changed_anywhere_only_what_was_sent_before_is_read() {
    let (world, mut rng) = (World::new(), chance());
    let (mut ended, mut whole) = (0, 0);
    for _ in 0..runs() * TIMES {
        let (mut client, mut server) = world.ends();
        let hello = said_by(&mut client).expect("a hello");
        let answer = give(&mut server, &hello).expect("an answer");
        let last = give(&mut client, &answer).expect("the end of it");
        give(&mut server, &last).expect("it stands");
        let (mut text, mut records) = (Vec::new(), Vec::new());
        for _ in 0..=rng.below(4) {
            let part = noise(&mut rng, 50_000);
            let mut out = Output::default();
            let taken = client.seal(&[IoSlice::new(&part)], &mut out).expect("it stands");
            text.extend_from_slice(&part[..taken]);
            records.extend_from_slice(out.bytes());
        }
        let sent = records.clone();
        if rng.chance(7, 8) {
            (0..=rng.below(2)).for_each(|_| change(&mut rng, &mut records));
        }
        let mut read = Vec::new();
        let mut take = || {
            for piece in records.chunks(1 + rng.index(40_000)) {
                let mut raw = Buffer::take();
                raw.room()[..piece.len()].copy_from_slice(piece);
                server.take_in(raw, piece.len())?;
                read_all(&mut server, &mut read)?;
            }
            Ok::<(), rustls::Error>(())
        };
        let result = take();
        assert!(text.starts_with(&read), "something else was read than was sent");
        ended += u64::from(result.is_err());
        if records == sent {
            assert!(result.is_ok() && read == text, "what was sent unchanged was not read");
            whole += 1;
        }
    }
    assert!(ended > 0 && whole > 0, "{ended} ended, {whole} were whole: nothing was tried");
}

#[test]
fn certificates_and_sealed_authorities_of_any_bytes_are_refused() {
    let (world, mut rng) = (World::new(), chance());
    let own = world.authority.issue(HOST).expect("issued");
    let parts = [own.certificate_pem(), own.key_pem(), own.ca().to_pem()];
    let secret = join_secret().expect("a secret");
    let sealed = world.authority.seal(&secret).expect("sealed");
    for _ in 0..runs() * 10 * TIMES {
        let mut texts = parts.clone();
        let which = rng.index(3);
        let mut bytes = texts[which].clone().into_bytes();
        (0..=rng.below(3)).for_each(|_| change(&mut rng, &mut bytes));
        texts[which] = String::from_utf8_lossy(&bytes).into_owned();
        if let Err(error) = Identity::from_pem(&texts[0], &texts[1], &texts[2]) {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        // DER below the base 64: lengths that reach beyond the end.
        let mut der = own.chain[0].to_vec();
        (0..=rng.below(3)).for_each(|_| change(&mut rng, &mut der));
        let key = own.key.clone_key();
        if let Err(error) = Identity::new(vec![der.into()], key, own.ca().clone()) {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        let mut wrong = sealed.clone();
        change(&mut rng, &mut wrong);
        // With a checksum that fits, half of the time.
        if let Some((body, crc)) = wrong.split_last_chunk_mut::<4>()
            && rng.chance(1, 2)
        {
            *crc = braid_base::crc::crc32c(body).to_le_bytes();
        }
        assert!(wrong == sealed || Authority::open(&wrong, &secret).is_err());
    }
}
