//! What a host shows of itself: its newest certificate, also where connections were set up with an older one.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Shared by all who speak for one host.
#[derive(Debug)]
pub(super) struct Shown {
    /// Once somebody has asked for it.
    key: RwLock<Option<Arc<CertifiedKey>>>,
    /// When it must have been replaced, seconds since 1970.
    expires_s: AtomicI64,
}

impl Shown {
    pub(super) fn new(expires_s: i64) -> Self {
        Self { key: RwLock::new(None), expires_s: AtomicI64::new(expires_s) }
    }

    pub(super) fn expires_s(&self) -> i64 {
        self.expires_s.load(Ordering::Relaxed)
    }

    pub(super) fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on that is shown; connections that are there stay.
    pub(super) fn set(&self, key: Arc<CertifiedKey>, expires_s: i64) {
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        self.expires_s.store(expires_s, Ordering::Relaxed);
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key()
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.key()
    }

    fn has_certs(&self) -> bool {
        true
    }
}
